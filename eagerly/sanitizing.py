"""Makes text from run directories harmless for terminals and pages: names may be untrusted."""

from __future__ import annotations

import re

# Control characters, lone surrogates, line separators, and characters that change text direction.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def sanitize(text: str, *, lines: bool = True) -> str:
    """Replaces control characters with visible, harmless escape sequences.

    Args:
        text: Any text.
        lines: Whether to keep line breaks and tabs.
    """

    def escaped(found: re.Match[str]) -> str:
        if lines and found[0] in "\n\t":
            return found[0]
        if "\x7f" < found[0] <= "\x9f":  # TOML leaves these unescaped, and has no "\x"
            return f"\\u{ord(found[0]):04x}"
        return found[0].encode("unicode_escape", "surrogatepass").decode()

    return _UNPRINTABLE.sub(escaped, text)
