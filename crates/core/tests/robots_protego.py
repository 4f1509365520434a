"""Asks protego what robots_protego.rs asked our parser, and says why where the answers differ.

Standard input: one JSON object a file, {"file": path, "asked": [[agent, path, our answer], ...]}.
Standard output: one JSON object a disagreement, {"file", "agent", "path", "ours", "why"}.

A reason is found by experiment: each of READINGS changes one thing in protego, or in what it is given, to what RFC 9309
says. If protego then gives our answer, that difference was the reason. `None` means that nothing explains it.
"""

import contextlib
import json
import re
import sys
from unittest import mock
from urllib.parse import quote

import protego._protego as module
import protego._ruleset as ruleset
from protego import Protego

ROBOTS_BYTES_MAX = 500 * 1024
UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
RESERVED = ":/?#[]@!$&'()*+,;="


def text_of(body):
    """As a crawler that uses protego would decode it."""
    for mark in (b"\xff\xfe", b"\xfe\xff"):
        if body.startswith(mark):
            return body.decode("utf-16", errors="replace")
    return body.decode("utf-8-sig", errors="replace")


def lines_that_concern_rules(text):
    """2.2.4: records of other kinds do not interfere."""
    kept = []
    for line in re.split(r"\r\n|\r|\n", text):
        found = module._extract_directive(line.partition("#")[0].strip() or "-")
        if found and found[0] in module._USER_AGENT_DIRECTIVE | module._ALLOW_DIRECTIVE | module._DISALLOW_DIRECTIVE:
            kept.append(line)
    return "\n".join(kept)


def white_space(text):
    """2.2: white space is space and tab, not the other characters that Python strips."""
    return re.sub("[^\\S \\t\\r\\n]", lambda match: quote(match[0]), text)


def product_tokens(text):
    """2.2.1: a product token ends where a version or a comment begins, and knows no wildcards."""

    def named(match):
        value = match[2].partition("#")[0].strip()
        names = {re.match(r"[A-Za-z0-9_-]*", value)[0].lower(), value.lower()}
        if re.match(r"\*\s", value):
            names = {"*"}
        elif value != "*":
            names = {name for name in names if "*" not in name}
        return "\n".join(f"user-agent: {name}" for name in sorted(names))

    return re.sub(r"(?im)^[ \t]*(user-?agent)[ \t]*:([^\r\n]*)", named, text)


def whole_names(self, robotname):
    """2.2.1: a group is for the crawler whose token it names, not for those whose names begin with it."""
    return 1 if self.user_agent == "*" else 2 * (self.user_agent == robotname.strip().lower())


def spelt(text, special):
    """2.2.2: only escapes of unreserved characters are decoded."""
    out = []
    for part in re.findall(r"%[0-9A-Fa-f]{2}|.", text, re.DOTALL):
        if len(part) == 3:
            char = chr(int(part[1:], 16))
            out.append(char if char in UNRESERVED else part.upper())
        elif part in special:
            out.append(part)
        else:
            out.append(quote(part, safe=RESERVED.replace("*", "").replace("$", "")))
    return "".join(out)


def spelt_path(url):
    return spelt(url.removeprefix("http://host"), "")


def spelt_pattern(pattern):
    if pattern.endswith("$"):
        return spelt(pattern[:-1], "*") + "$"
    return spelt(pattern, "*")


def plain_allow(self, pattern):
    self._rules.append(ruleset._Rule("allow", self._url_pattern(pattern)))


def plain_disallow(self, pattern):
    self._rules.append(ruleset._Rule("disallow", self._url_pattern(pattern)))


def allow_without_index(self, pattern):
    """2.2.2: an allow line for index.html says nothing about its directory."""
    if "$" in pattern:
        plain_allow(self, pattern.replace("$", "%24"))
    plain_allow(self, pattern)


def patch(**methods):
    return lambda: mock.patch.multiple(ruleset._RuleSet, **methods)


def patch_spelling():
    return mock.patch.multiple(ruleset, _quote_path=spelt_path, _quote_pattern=spelt_pattern)


# Reason, change of the text, change of protego.
READINGS = [
    ("2.2.1: groups are for whole product tokens", product_tokens, patch(applies_to=whole_names)),
    ("2.2.2: escapes of reserved characters stay", None, patch_spelling),
    ("2.2.2: index.html is a name like others", None, patch(allow=allow_without_index)),
    ("2.2.3: $ at the end is not also a literal $", None, patch(allow=plain_allow, disallow=plain_disallow)),
    ("2.2.4: other records end no group", lines_that_concern_rules, None),
    ("2.2: white space", white_space, None),
    ("2.5: the first 500 KiB", lambda text: text[: text.rfind("\n", 0, ROBOTS_BYTES_MAX)], None),
]


def answer(text, agent, path, readings):
    with contextlib.ExitStack() as stack:
        for _, change, change_protego in readings:
            if change:
                text = change(text)
            if change_protego:
                stack.enter_context(change_protego())
        return Protego.parse(text).can_fetch("http://host" + path, agent)


def reason(text, agent, path, ours):
    for reading in READINGS:
        if answer(text, agent, path, [reading]) == ours:
            return reading[0]
    if answer(text, agent, path, READINGS) == ours:
        return "several of these"
    return None


def main():
    for request in map(json.loads, sys.stdin.read().splitlines()):
        with open(request["file"], "rb") as file:
            text = text_of(file.read())
        parser = Protego.parse(text)
        for agent, path, ours in request["asked"]:
            if parser.can_fetch("http://host" + path, agent) != ours:
                why = reason(text, agent, path, ours)
                print(json.dumps({"file": request["file"], "agent": agent, "path": path, "ours": ours, "why": why}))


main()
