"""How connections are made: spread over the addresses of a name, TLS with the store's own authority, sessions used again."""
from fault_store import BLOB, FaultStore, Schedule, Thing
from probe import is_whole
from test_fault_schedules import ENVIRONMENT


def test_connections_are_spread_over_the_addresses_of_a_name(probe):
    with FaultStore(host="0.0.0.0") as store:
        store.add(Schedule("spread", {f"{i}": Thing(i, 1000, ["slow_first_byte"]) for i in range(128)}))
        p = probe(ENVIRONMENT, endpoint=f"http://store.probe:{store.port}", addressing="path")
        p.ask("names", addresses=2)
        came = p.get_all([{"address": f"s3://spread/{i}"} for i in range(128)])
        assert all(is_whole(c, BLOB[i:i + 1000]) for i, c in enumerate(came))
        assert sorted(store.reached) == ["127.0.0.1", "127.0.0.2"], store.reached


def test_a_store_with_a_certificate_of_its_own(probe, certificate):
    """Refused in words where nobody vouches for it; with its authority as `ca` it is read."""
    with FaultStore(certificate=certificate) as store:
        store.add(Schedule("tls", {"a": Thing(0, 5000)}))
        for ca in (None, "/nonexistent.pem"):
            refused = probe(ENVIRONMENT, endpoint=store.url, addressing="path", **({"ca": ca} if ca else {})).get("s3://tls/a")
            assert refused["status"] == "STK_ERR_NETWORK" and "certificate" in refused["message"] and "ca" in refused["message"], refused
        assert store.schedules["tls"].requests == 0
        trusting = probe(ENVIRONMENT, endpoint=store.url, addressing="path", ca=str(certificate.with_suffix(".crt")))
        assert is_whole(trusting.get("s3://tls/a"), BLOB[:5000])
        from_environment = probe(ENVIRONMENT | {"AWS_CA_BUNDLE": str(certificate.with_suffix(".crt"))}, endpoint=store.url, addressing="path")
        assert is_whole(from_environment.get("s3://tls/a"), BLOB[:5000])


def test_a_later_connection_goes_on_with_the_tls_session(probe, certificate):
    with FaultStore(certificate=certificate) as store:
        store.add(Schedule("tls", {f"{i}": Thing(i, 100, ["closes_after"]) for i in range(20)}))
        p = probe(ENVIRONMENT, endpoint=store.url, addressing="path", ca=str(certificate.with_suffix(".crt")))
        for i in range(20):
            assert is_whole(p.get(f"s3://tls/{i}"), BLOB[i:i + 100])
        assert store.resumed >= 15, (store.resumed, store.reached)
