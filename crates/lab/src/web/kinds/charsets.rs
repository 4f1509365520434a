//! Pages in many character sets. Their links say whether they were read right: paths are always UTF-8, queries are in the
//! page's own encoding (UTF-16 pages use UTF-8), as the WHATWG URL standard has it.

use encoding_rs::Encoding;

use super::{Kind, PLAIN, Special};
use crate::web::{plan::Rule, reply::Reply};

pub(crate) fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "charsets",
        about: "UTF-8 and -16, Shift_JIS, windows-1251, ISO-8859-1, GB18030, EUC-KR and Big5, said by header, meta or \
                byte order mark: links lead to the right place",
        specials: |_| CASES.into_iter().flat_map(special).collect(),
        ..PLAIN
    }]
}

struct Case {
    name: &'static str,
    /// What the header says.
    header: &'static str,
    /// What the page says.
    meta: &'static str,
    /// What it really is.
    encoding: &'static str,
    /// What queries are encoded in.
    query: &'static str,
    mark: bool,
    text: &'static str,
}

const UTF8: Case = Case {
    name: "utf-8",
    header: "; charset=utf-8",
    meta: "",
    encoding: "utf-8",
    query: "utf-8",
    mark: false,
    text: "é世",
};

const CASES: [Case; 14] = [
    UTF8,
    Case { name: "utf-8-meta", header: "", meta: "<meta charset=utf-8>", ..UTF8 },
    Case { name: "utf-8-mark", header: "; charset=iso-8859-1", mark: true, ..UTF8 },
    Case { name: "utf-16le", header: "; charset=utf-16le", encoding: "utf-16le", ..UTF8 },
    Case { name: "utf-16le-mark", header: "", encoding: "utf-16le", mark: true, ..UTF8 },
    Case { name: "utf-16be-mark", header: "", encoding: "utf-16be", mark: true, ..UTF8 },
    Case { name: "utf-16-claimed", header: "", meta: "<meta charset=utf-16>", ..UTF8 },
    legacy("latin-1", "; charset=ISO-8859-1", "", "windows-1252", "é"),
    legacy("windows-1251", "; charset=\"windows-1251\"", "", "windows-1251", "мир"),
    legacy("shift-jis", "", "<meta charset='Shift_JIS'>", "shift_jis", "日本"),
    legacy(
        "gb18030",
        "",
        "<META http-equiv=Content-Type content='text/html; charset=gb18030'>",
        "gb18030",
        "中文",
    ),
    legacy("euc-kr", "; charset=euc-kr", "<meta charset=utf-8>", "euc-kr", "한국"),
    legacy("big5", "; charset=big5; x=y", "", "big5", "中文"),
    legacy("unlabelled", "", "", "windows-1252", "é"),
];

const fn legacy(
    name: &'static str,
    header: &'static str,
    meta: &'static str,
    encoding: &'static str,
    text: &'static str,
) -> Case {
    Case { name, header, meta, encoding, query: encoding, mark: false, text }
}

fn special(case: Case) -> Vec<Special> {
    let Case { name, header, meta, text, mark, encoding, query } = case;
    let path_target = format!("/path/{name}/{}", escaped(text.as_bytes()));
    let query_target = format!("/query/{name}?q={}", escaped(&encoded(query, text, false)));
    let page = format!(
        "<!doctype html><html><head>{meta}<title>{text}</title></head><body>\
         <a href=\"/path/{name}/{text}\">path</a> <a href=\"/query/{name}?q={text}\">query</a></body></html>"
    );
    let body = encoded(encoding, &page, mark);
    vec![
        Special::page(&format!("/charset/{name}"), Rule::Expected)
            .answering(move |_| Reply::new(200, &format!("text/html{header}"), &body)),
        Special::page(&path_target, Rule::Expected).unlinked(),
        Special::page(&query_target, Rule::Expected).unlinked(),
    ]
}

/// Text in an encoding, with a byte order mark if wanted.
fn encoded(encoding: &str, text: &str, mark: bool) -> Vec<u8> {
    let text = if mark { format!("\u{feff}{text}") } else { text.to_owned() };
    match encoding {
        "utf-16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        label => match Encoding::for_label(label.as_bytes()) {
            Some(encoding) => encoding.encode(&text).0.into_owned(),
            None => text.into_bytes(),
        },
    }
}

/// As URLs have it: ASCII as it is, where it is a letter or a digit, all else escaped.
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte.is_ascii_graphic() && !b"\"#<>'".contains(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    bytes.iter().map(escape).collect()
}
