from gateway.dialects import table


def test_each_dialect_stands_under_its_own_name_and_has_its_own_memo() -> None:
    memos = table.memos()

    assert [each.name for each in table.DIALECTS.values()] == list(table.DIALECTS) == list(memos)
    assert len({id(each) for each in memos.values()}) == len(memos)
