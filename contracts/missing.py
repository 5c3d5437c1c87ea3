"""Texts by which other tools say that a value is missing, in lower case."""

# Wherever they stand: no category and no class has such a name.
MISSING = frozenset({"na", "n/a", "#n/a", "nan", "<na>", "nat", "null", "nil", "\\n"})
INFINITE = frozenset({"inf", "infinity"})
# Nearly always, among texts too.
PLACEHOLDERS = MISSING | {"none", "-", "--", "?", "."}
# Where a number or a moment is due.
INSTEAD_OF_NUMBERS = PLACEHOLDERS | {"missing", "unknown"}
