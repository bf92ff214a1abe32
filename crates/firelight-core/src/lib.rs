//! Composable Transformer modules for Burn: attention, positions, masks, caches, blocks and losses on tensors.
