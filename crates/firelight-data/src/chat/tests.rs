//! What `transformers` renders, `tests/fixtures/chat_templates.py` wrote it down, and what hostile templates do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::TempDir;

use super::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/chat")
}

#[derive(Deserialize)]
struct Expected {
    texts: BTreeMap<String, Vec<Option<String>>>,
    /// The tokens of templates that have others than `<s>` and `</s>`.
    tokens: BTreeMap<String, BTreeMap<String, String>>,
}

fn conversations() -> Vec<Conversation> {
    let text = fs::read_to_string(fixtures().join("conversations.json")).unwrap();
    let values: Vec<Value> = serde_json::from_str(&text).unwrap();
    values.iter().map(|value| Conversation::parse(&serde_json::to_string(value).unwrap()).unwrap()).collect()
}

#[test]
fn every_template_gives_the_bytes_of_transformers() {
    let expected: Expected = serde_json::from_slice(&fs::read(fixtures().join("expected.json")).unwrap()).unwrap();
    let conversations = conversations();
    let mut refused = 0;
    for (name, texts) in &expected.texts {
        let template = fs::read_to_string(fixtures().join(format!("templates/{name}.jinja"))).unwrap();
        let mut template =
            ChatTemplate::new(template).unwrap().with_token("bos_token", "<s>").with_token("eos_token", "</s>");
        for (role, token) in expected.tokens.get(name).into_iter().flatten() {
            template = template.with_token(role, token);
        }
        assert_eq!(texts.len(), conversations.len());
        for (i, (conversation, text)) in conversations.iter().zip(texts).enumerate() {
            let found = template.render(conversation);
            refused += usize::from(found.is_err());
            match text {
                Some(text) => assert_eq!(&found.unwrap_or_else(|e| panic!("{name} {i}: {e}")), text, "{name} {i}"),
                None => assert!(found.is_err(), "{name} {i}: {found:?}"),
            }
        }
    }
    assert_eq!((expected.texts.len(), conversations.len(), refused), (11, 10, 8));
    assert!(expected.tokens.keys().eq(["deepseek_v3", "olmo2", "phi3"]));
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    home
}

fn rendered(home: &TempDir, conversation: &Conversation) -> String {
    ChatTemplate::of_folder(home.path()).unwrap().expect("a template").render(conversation).unwrap()
}

fn with_tools() -> Conversation {
    Conversation::parse(r#"{"messages": [], "tools": [{"name": "clock"}]}"#).unwrap()
}

#[test]
fn a_template_is_found_wherever_it_is_published_and_kept() {
    let hello = Conversation::new([("user", "hello")]);
    let config = r#"{"bos_token": {"content": "<s>"}, "add_bos_token": true, "chat_template": "{{ bos_token }}{{ messages[0].content }}"}"#;
    let home = folder(&[("tokenizer_config.json", config), ("special_tokens_map.json", r#"{"bos_token": "<x>"}"#)]);
    assert_eq!(rendered(&home, &hello), "<s>hello");
    let map = folder(&[
        ("chat_template.jinja", "{{ bos_token }}"),
        ("special_tokens_map.json", r#"{"bos_token": "<x>"}"#),
        ("additional_chat_templates/tool_use.jinja", "{{ tools[0].name }}"),
    ]);
    assert_eq!((rendered(&map, &hello), rendered(&map, &with_tools())), ("<x>".into(), "clock".into()));
    let list =
        r#"{"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "none"}]}"#;
    let list = folder(&[("tokenizer_config.json", list)]);
    assert_eq!((rendered(&list, &hello), rendered(&list, &with_tools())), ("none".into(), "tools".into()));
    for home in [&home, &map, &list] {
        let copy = tempfile::tempdir().unwrap();
        ChatTemplate::of_folder(home.path()).unwrap().unwrap().save(copy.path()).unwrap();
        for conversation in [&hello, &with_tools()] {
            let [found, kept] = [home, &copy]
                .map(|home| ChatTemplate::of_folder(home.path()).unwrap().unwrap().render(conversation).ok());
            assert_eq!(kept, found);
        }
    }
    assert!(ChatTemplate::of_folder(folder(&[("config.json", "{}")]).path()).unwrap().is_none());
}

#[test]
fn a_template_that_is_wrong_is_told_with_its_place() {
    let error = |files: &[(&str, &str)]| ChatTemplate::of_folder(folder(files).path()).unwrap_err();
    let found = error(&[("chat_template.jinja", "a\n{% for %}")]);
    assert!(
        found.is_user_error() && found.to_string().contains("the chat template has an error in line 2: "),
        "{found}"
    );
    assert!(error(&[("tokenizer_config.json", "{")]).to_string().contains("tokenizer_config.json"));
}

#[test]
fn a_template_that_refuses_or_fails_is_told_with_its_reason() {
    let error = |template: &str| {
        let found = ChatTemplate::new(template).unwrap().render(&Conversation::new([("user", "a")])).unwrap_err();
        assert!(found.is_user_error());
        found.to_string()
    };
    assert!(
        error("{{ raise_exception('no system') }}")
            .starts_with("the chat template rejects the conversation: no system")
    );
    assert!(error("{{ messages[0].content.pop() }}").contains("rejects"));
    assert!(error("{{ strftime_now('%Q') }}").contains("the date cannot be written as \"%Q\""));
    for wide in ["{{ messages | tojson(indent=70000) }}", "{{ 'a' | indent(70000) }}"] {
        assert!(error(wide).contains("an indentation of 70000 is too wide"));
    }
    let long = Conversation::parse("{\"role\": 1}").unwrap_err().to_string();
    assert!(long.starts_with("this is not a conversation: missing field `messages`"), "{long}");
}

#[test]
fn a_template_without_an_end_ends() {
    for template in [
        "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% set ns = namespace(x='ab') %}{% for a in range(90000) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    ] {
        let found = ChatTemplate::new(template).unwrap().render(&Conversation::new([])).unwrap_err().to_string();
        assert!(found.contains("does not terminate") || found.contains("recursion"), "{found}");
    }
}

#[test]
fn the_date_of_today_is_in_utc() {
    let template = ChatTemplate::new("{{ strftime_now('%d %b %Y') }}").unwrap();
    let found = template.render(&Conversation::new([])).unwrap();
    let [day, month, year] = found.split(' ').collect::<Vec<_>>()[..] else { panic!("{found}") };
    let is_number = |text: &str, digits| text.len() == digits && text.chars().all(|c| c.is_ascii_digit());
    assert!(is_number(day, 2) && month.len() == 3 && is_number(year, 4), "{found}");
}
