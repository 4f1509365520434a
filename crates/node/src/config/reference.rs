//! docs/settings.md, made from the table of settings.

use super::table::{Group, SETTINGS};

/// What stands above the tables.
const HEAD: &str = "# Settings

Each setting is a flag of `nephila crawl` (`--delay 2s`) and a key of a file for `--config` (`delay = \"2s\"`). Unknown keys are
refused, and all mistakes are reported at once.

What wins, the strongest first:

1. flags;
2. the file of `--config`;
3. the environment: `NEPHILA_CONTACT`, and nothing else;
4. the user's configuration, `$XDG_CONFIG_HOME/nephila/config.toml` or else `~/.config/nephila/config.toml`, which may hold
   `contact` and nothing else; an answer to the question for a contact is kept there;
5. the defaults below.

A crawl records its settings in `DIR/crawl.toml`. Where a command names seeds, what it leaves out is as by default again, also
when it goes on with a crawl (another scope or order is refused). `nephila crawl --out DIR` without seeds takes `DIR/crawl.toml`
as its file and so keeps what was recorded; flags change it from then on.

Durations are `500ms`, `2s`, `10m`, `1.5h`, `3d`; a bare number means seconds. Sizes are `64KiB`, `16MiB` (powers of 1,024),
`256KB`, `10GB` (powers of 1,000); a bare number means bytes. Where the default is none, `none` switches a setting off
again. Lists are written `a,b` or, in a file, `[\"a\", \"b\"]`; regular expressions are never split at commas. Relative paths
in a file start at its directory. `DIR/crawl.toml` of a crawl is such a file.

`nephila crawl --help` shows all flags, `-h` the common ones (marked + below).

This page is made from the program: `nephila config --reference > docs/settings.md`.
";

/// The text of docs/settings.md.
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    for group in Group::ALL {
        text.push_str(&format!(
            "\n## {}\n\n| name | value | default | meaning |\n|---|---|---|---|\n",
            group.title()
        ));
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            text.push_str(&format!(
                "| `{}`{} | {} | {} | {} |\n",
                setting.name,
                if setting.advanced { "" } else { " +" },
                setting.value.replace('|', " or "),
                setting.default_words(),
                setting.about
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == reference(),
            "docs/settings.md differs from the program: nephila config --reference > docs/settings.md"
        );
    }

    #[test]
    fn every_setting_is_told_once() {
        let text = reference();
        for setting in SETTINGS {
            assert_eq!(text.matches(&format!("| `{}`", setting.name)).count(), 1, "{}", setting.name);
            assert!(!setting.about.contains('|') && !setting.about.ends_with('.'), "{}", setting.name);
        }
    }
}
