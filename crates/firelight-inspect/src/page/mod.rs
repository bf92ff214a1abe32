//! The page: one file of HTML that shows all maps and loads nothing.
//!
//! The script makes everything that can be seen out of the data, which stand in the page as JSON: tokens as text, never as markup, and the
//! square roots of the weights of each kind in steps of 1/255, packed by zlib and written in base64. The policy in the head forbids the page to load
//! anything, whatever a token says.

mod data;

pub(crate) use data::{base64, json_in_html};

use firelight_storage::palette::{Colour, page_style};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::maps::AttentionMaps;
use crate::scale::TOKENS;
use crate::svg::dark_style;

/// What a page may load and run: what it holds itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The style that all pages share, in the colours of the palette.
const STYLE: &str = include_str!("style.css");

const SCRIPT: &str = include_str!("script.js");

/// A page of this title, which loads nothing: `style` is added to the style that all pages share, `body` stands below the title.
pub(crate) fn frame(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(colours())) (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}

/// All colours of a page, light or dark as the browser is set: those of its words, and those of drawings in it.
fn colours() -> String {
    let names: Vec<String> = (0..TOKENS.len()).map(|place| format!("t{place}")).collect();
    let tokens: Vec<(&str, [Colour; 2])> = names.iter().map(String::as_str).zip(TOKENS).collect();
    format!("{}{}", page_style(&tokens), dark_style())
}

/// The maps as a page for the browser: small maps of all layers and heads; a large one with its tokens, whose weights can be read by
/// pointer and by arrow keys; lines between the tokens (Vig 2019, <https://arxiv.org/abs/1906.05714>); of an image, the patches that a
/// token looks at, and attention rollout.
///
/// What is under the pointer stands in the attributes `data-query`, `data-key` and `data-weight` of the element `readout`.
///
/// ```
/// use firelight_inspect::{AttentionKind, AttentionMaps, Map, page};
///
/// let token = || vec!["</script>".to_string()];
/// let map = Map::new(0, 0, [1, 1], vec![1.0]);
/// let maps = AttentionMaps::new(AttentionKind::SelfAttention, token(), token(), vec![vec![map]]);
/// assert_eq!(page("one token", &[maps]).matches("</script>").count(), 2);
/// ```
pub fn page(title: &str, maps: &[AttentionMaps]) -> String {
    let body = html! {
        noscript { p { "This page draws its maps by a script: allow it to run." } }
        (controls())
        (views())
        script type="application/json" id="data" { (PreEscaped(data::json(maps))) }
        script { (PreEscaped(SCRIPT)) }
    };
    frame(title, "", &body)
}

/// Which kind is shown, and what its colours mean.
fn controls() -> Markup {
    html! {
        div.controls {
            div #kinds role="group" aria-label="kind of attention" {}
            label { input #relative type="checkbox" checked; " strongest colour at each row's largest weight" }
            span #legend { span { "0" } span #ramp {} span #most {} }
        }
    }
}

/// The places that the script fills.
fn views() -> Markup {
    html! {
        main {
            section aria-labelledby="grid-title" {
                h2 #grid-title { "Layers and heads" }
                p.hint { "A row is a layer, a column a head. Choose one by a click or by the arrow keys." }
                div #grid {}
            }
            section aria-labelledby="map-title" {
                h2 #map-title {}
                p.hint { "A row is a token that reads, a column one that is read. Point at a weight, or go there by the arrow keys." }
                p #readout aria-live="polite" {}
                div #map tabindex="0" role="application" aria-label="weights of one head" {
                    div #columns {} div #rows {} div #cells { canvas {} div #cursor {} }
                }
            }
            section #image-view aria-labelledby="image-title" hidden {
                h2 #image-title { "On the image" }
                div #images {}
            }
            section aria-labelledby="lines-title" {
                h2 #lines-title { "Lines" }
                p.hint { "From the tokens that read, on the left, to those that are read. Point at a token to see its lines alone." }
                div #lines {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::{AttentionKind, Map};

    #[test]
    fn the_page_loads_nothing_and_keeps_its_markup_whatever_the_tokens_are() {
        let tokens = ["</script><img src=x>", "\"'&", "\u{0}\u{1b}", "\u{1f642}", "\u{5e9}\u{202e}"];
        let labels: Vec<String> = tokens.map(String::from).to_vec();
        let map = Map::new(0, 0, [5, 5], vec![0.2; 25]);
        let maps = AttentionMaps::new(AttentionKind::SelfAttention, labels.clone(), labels, vec![vec![map]]);
        let page = page("<title> & more", &[maps]);
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>&lt;title&gt; &amp; more</title>"));
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (2, 2));
        let outside = ["src=\"", "href=", "https://", "@import", "url(", "<img", "eval(", "innerHTML"];
        for text in outside {
            assert!(!page.contains(text), "{text} is in the page");
        }
        // The one address names SVG, and is nothing to load.
        assert_eq!(page.matches("http://").count(), page.matches("http://www.w3.org/2000/svg").count());
        assert!(page.chars().all(|character| !character.is_control() || character == '\n'));
    }
}
