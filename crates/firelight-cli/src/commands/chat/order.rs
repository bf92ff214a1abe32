//! The commands of a conversation: lines that begin with a slash.

use std::path::PathBuf;

/// What a command begins with.
pub(super) const MARK: char = '/';

/// From this likeness on a known name is suggested for another one.
const LIKENESS: f64 = 0.7;

/// What the user may ask for beside answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    Help,
    System(String),
    Clear,
    Undo,
    Retry,
    Save(PathBuf),
    Load(PathBuf),
    Show,
    Quit,
}

/// Every command: its name, what stands behind it, and what it does.
const ORDERS: &[(&str, &str, &str)] = &[
    ("/help", "", "list the commands"),
    ("/system", "TEXT", "set the system message; without TEXT there is none"),
    ("/clear", "", "forget the conversation; the system message stays"),
    ("/undo", "", "take back the last message and its answer"),
    ("/retry", "", "answer the last message again, with other draws"),
    ("/save", "FILE", "write the messages as JSON"),
    ("/load", "FILE", "go on with the messages of a file"),
    ("/show", "", "print the text that the model reads"),
    ("/quit", "", "end the conversation, as Ctrl-D does"),
];

/// What `/help` says, line by line.
pub(super) fn help() -> impl Iterator<Item = String> {
    let orders = ORDERS.iter().map(|(name, argument, what)| format!("{:<14}{what}", format!("{name} {argument}")));
    let lines = [
        "A line that ends with \\ goes on in the next one; \"\"\" begins and ends a message of several lines.",
        "Ctrl-C stops an answer; pressed again at once it ends the program.",
    ];
    orders.chain(lines.map(String::from))
}

impl Order {
    /// Reads a line; the error says what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        match (name, argument) {
            ("/system", text) => Ok(Self::System(text.into())),
            ("/save" | "/load", "") => Err(format!("{name} needs the path of a file: type {name} FILE")),
            ("/save", file) => Ok(Self::Save(file.into())),
            ("/load", file) => Ok(Self::Load(file.into())),
            (_, "") => Self::bare(name).ok_or_else(|| unknown(name)),
            _ if Self::bare(name).is_some() => Err(format!("{name} takes no argument: type {name} alone")),
            _ => Err(unknown(name)),
        }
    }

    /// The command of a name that nothing stands behind.
    fn bare(name: &str) -> Option<Self> {
        Some(match name {
            "/help" => Self::Help,
            "/clear" => Self::Clear,
            "/undo" => Self::Undo,
            "/retry" => Self::Retry,
            "/show" => Self::Show,
            "/quit" => Self::Quit,
            _ => return None,
        })
    }
}

/// Names the command that was meant, perhaps, and the way to say what begins with a slash.
fn unknown(name: &str) -> String {
    let likeness = |known: &str| strsim::jaro_winkler(name.trim_start_matches(MARK), known.trim_start_matches(MARK));
    let known = ORDERS.iter().map(|(known, ..)| (likeness(known), *known));
    let nearest = known.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(likeness, _)| *likeness >= LIKENESS);
    let meant = nearest.map_or(String::new(), |(_, known)| format!(" did you mean {known}?"));
    let name = firelight::storage::shortened(name);
    format!("there is no command {name}:{meant} /help lists them; put a space before a message that begins with /")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_list_is_read() {
        for (name, argument, _) in ORDERS {
            assert!(Order::parse(&format!("{name} {argument}")).is_ok(), "{name}");
        }
        assert_eq!(Order::parse("/system  Be brief. "), Ok(Order::System("Be brief.".into())));
        assert_eq!(Order::parse("/save my file.json"), Ok(Order::Save("my file.json".into())));
        assert_eq!(Order::parse("/system"), Ok(Order::System(String::new())));
    }

    #[test]
    fn a_command_that_is_none_is_told_with_the_nearest_one() {
        let told = |line: &str| Order::parse(line).unwrap_err();
        assert!(told("/retr").starts_with("there is no command /retr: did you mean /retry? /help lists them"));
        assert!(
            told("/etc/passwd says").starts_with("there is no command /etc/passwd: "),
            "{}",
            told("/etc/passwd says")
        );
        assert!(!told("/").contains("did you mean"), "{}", told("/"));
        assert_eq!(told("/save"), "/save needs the path of a file: type /save FILE");
        assert_eq!(told("/undo twice"), "/undo takes no argument: type /undo alone");
    }
}
