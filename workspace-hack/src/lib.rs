//! Nothing but dependencies: one feature set for every test build, so that Burn is compiled once.
