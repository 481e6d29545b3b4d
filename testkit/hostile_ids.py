"""Ids that nobody would choose, and clients may: what looks like markup, commands, controls; none; the longest."""

IDS = (
    *("", " ", " lead", "tab\t", "nul\0nul", "a,b", "line\nfeed", "cr\rlf\r\n", 'q"uo"te', "it's", "--group", "%s{}"),
    *("\x1b[31mred\x1b]0;title\x07", "\x9b31m", "a\x85b", "a\u2028b", "\u202eright to left", "\ufeffmark", "null"),
    # As long as Kafka's strings may be: 32,767 bytes.
    *("g" * 32_767, "\x7f" * 32_767, "😀" * 8191, "\U0010ffff" * 8191),
)
