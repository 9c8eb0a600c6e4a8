from gateway.litellm_import.tables import AZURE, NATIVE, SAID, SERVERS, TRANSLATED


def test_a_provider_stands_in_one_table() -> None:
    groups = [set(SERVERS), set(NATIVE), set(AZURE), set(TRANSLATED)]

    assert sum(map(len, groups)) == len(set.union(*groups))


def test_addresses_are_https_or_of_this_machine() -> None:
    assert [url for url, _ in SERVERS.values() if url and not url.startswith(("https://", "http://127.0.0.1:"))] == []


def test_a_fate_stands_under_a_section_of_litellm() -> None:
    assert {name.split(".")[0] for name in SAID} == {"router_settings", "litellm_settings", "general_settings"}
