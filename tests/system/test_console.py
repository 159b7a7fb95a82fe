from app.system.console import aligned


def test_columns_are_as_wide_as_their_longest_cell():
    rows = [("name", "n", ""), ("a", "1,000", "note"), ("bc", "7", "")]
    assert aligned(rows, "<><") == ["name      n", "a     1,000  note", "bc        7"]
