#!/usr/bin/env python3
"""Small objects from a store whose first byte comes 30 ms late: Stoker's source, the plain libcurl loop, and other clients.

    python bench/compare_store.py --build build [--rounds 5] [--only plain,source,...] [--tail]

Each round runs every client once, in turn, against one slow_store (bench/slow_store.c) of 2,000 objects of 110 KB; what a round says of
Stoker is a ratio to the same round's other clients, and the table has the medians over the rounds.  With nginx and its echo module
installed (tools/install-deps rivals) the plain loop and the source also meet nginx, over HTTP and over TLS.  --tail: 1 % of the
requests take 2 s; how long a training that takes steps of 64 in order waits, with and without hedging.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

BYTES, DELAY_MS, COUNT = 110000, 30, 4000
RIVALS = {"obstore-threads": 256, "obstore-asyncio": 256, "s3torch": 256, "s3torch-tuned": 256, "boto3": 64, "s3fs": 256, "s5cmd": 256}
SLOW_ONES = {"boto3", "s3fs", "s3torch"}  # a quarter of the objects
ENVIRONMENT = os.environ | {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
                            "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
HERE = pathlib.Path(__file__).resolve().parent


@contextlib.contextmanager
def slow_store(build, **options):
    process = subprocess.Popen([build / "bench" / "slow_store", *(f"{k}={v}" for k, v in options.items())], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
    finally:
        process.kill()
        process.wait()


def counts(url):
    with urllib.request.urlopen(url + "/_counts") as answer:
        return json.load(answer)


def run(command, environment=None):
    done = subprocess.run([*map(str, command)], env=ENVIRONMENT | (environment or {}), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    out = json.loads(done.stdout)
    if out["failed"]:
        raise SystemExit(f"{command}: {out['failed']} failed: {done.stderr}")
    return out | {"rate": out["count"] / out["wall_s"], "cpu_us": out["cpu_s"] / out["count"] * 1e6, "cpu_s_gb": out["cpu_s"] / (out["bytes"] / 1e9)}


def clients(build, only):
    """name -> (in flight, command of a URL)."""
    bench = build / "bench" / "bench_store"

    def ours(mode, n, count):
        return n, lambda url: [bench, mode, url, count, n]
    table = {"plain": ours("plain", 256, COUNT), "source": ours("source", 256, COUNT), "source-64": ours("source", 64, COUNT // 2),
             "plain-64": ours("plain", 64, COUNT // 2), "source-512": ours("source", 512, 2 * COUNT), "plain-512": ours("plain", 512, 2 * COUNT)}
    python = HERE.parent / ".venv-rivals" / "bin" / "python"
    if python.exists():
        for name, n in RIVALS.items():
            count = COUNT // 4 if name in SLOW_ONES else COUNT
            table[name] = n, lambda url, name=name, n=n, count=count: [python, HERE / "rivals.py", name, url, count, n]
    return {k: v for k, v in table.items() if not only or k in only}


def print_table(rounds, table):
    print("| client | in flight | objects/s | of the limit | source / it | CPU us/object | CPU s/GB | peak MB | connections | most in flight |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")

    def median(name, of):
        return statistics.median(of(r[name]) for r in rounds)
    for name, (n, _) in table.items():
        limit = n / (DELAY_MS * 1e-3)
        beside = {"plain-64": "source-64", "plain-512": "source-512"}.get(name, "source")
        ratio = statistics.median(r[beside]["rate"] / r[name]["rate"] for r in rounds) if beside in table else float("nan")
        rate = median(name, lambda x: x["rate"])
        print(f"| {name} | {n} | {rate:,.0f} | {100 * rate / limit:.0f} % | {ratio:.2f} | {median(name, lambda x: x['cpu_us']):.0f} "
              f"| {median(name, lambda x: x['cpu_s_gb']):.2f} | {median(name, lambda x: x['peak_mb']):.0f} | {median(name, lambda x: x['connections']):.0f} "
              f"| {median(name, lambda x: x['most_in_flight']):.0f} |")


def compare(build, rounds, only):
    table, results = clients(build, only), []
    with slow_store(build, ms=DELAY_MS, bytes=BYTES) as url:
        for _ in range(rounds):
            results.append({})
            for name, (_, command) in table.items():
                counts(url)
                out = run(command(url))
                asked = counts(url)
                results[-1][name] = out | {"connections": asked["connections"], "most_in_flight": asked["most_in_flight"]}
    print_table(results, table)


# --- nginx: the independent one, and TLS ---

NGINX = """
load_module /usr/lib/nginx/modules/ngx_http_echo_module.so;
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000; sendfile on; tcp_nodelay on;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    server {{
        listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl;
        ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.3;
        location /b/ {{ echo_sleep 0.03; echo_exec @file; }}
        location @file {{ root {folder}/data; }}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder):
    def free_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]
    port, tls_port = free_port(), free_port()
    (folder / "data" / "b" / "img").mkdir(parents=True)
    block = os.urandom(BYTES)
    for i in range(2000):
        (folder / "data" / "b" / "img" / f"{i:05d}.jpg").write_bytes(block)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, tls_port=tls_port))
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}", f"https://127.0.0.1:{tls_port}"
    finally:
        process.terminate()
        process.wait()


def compare_nginx(build, rounds):
    bench = build / "bench" / "bench_store"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, nginx(pathlib.Path(folder)) as urls:
        results = [{(kind, mode): run([bench, mode, url, COUNT, 256], {"CA": f"{folder}/cert.pem"})
                    for kind, url in zip(("http", "TLS"), urls) for mode in ("plain", "source")} for _ in range(rounds)]
    print("\n| nginx, 256 in flight | plain loop objects/s | source / plain | plain CPU us/object | source CPU us/object | source connections, both passes |")
    print("|---|--:|--:|--:|--:|--:|")
    for kind in ("http", "TLS"):
        def median(of):
            return statistics.median(of(r[kind, "plain"], r[kind, "source"]) for r in results)
        print(f"| {kind} | {median(lambda p, s: p['rate']):,.0f} | {median(lambda p, s: s['rate'] / p['rate']):.2f} | {median(lambda p, s: p['cpu_us']):.0f} "
              f"| {median(lambda p, s: s['cpu_us']):.0f} | {median(lambda p, s: s['connections']):.0f} |")


def compare_tail(build, rounds):
    bench = build / "bench" / "bench_store"
    results = []
    for seed in range(1, rounds + 1):
        results.append({})
        for hedge in ("", "hedge"):
            with slow_store(build, ms=DELAY_MS, bytes=BYTES, sigma=0.3, tail=0.01, tail_ms=2000, seed=seed) as url:
                results[-1][hedge] = run([bench, "steps", url, 32000, 512, *filter(None, [hedge])])
    print("\n| 1 % at 2 s, steps of 64 every 40 ms, 512 ahead | waited, share of time | wait p99 ms | wait p99.9 ms | most ms | requests more |")
    print("|---|--:|--:|--:|--:|--:|")
    for hedge in ("", "hedge"):
        def median(of):
            return statistics.median(of(r[hedge]) for r in results)
        print(f"| {hedge or 'no hedge'} | {100 * median(lambda x: x['waited_s'] / x['wall_s']):.1f} % | {median(lambda x: x['wait_p99_ms']):.0f} "
              f"| {median(lambda x: x['wait_p999_ms']):.0f} | {median(lambda x: x['wait_most_ms']):.0f} | {100 * median(lambda x: x['hedges'] / x['requests']):.1f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: set(text.split(",")))
    parser.add_argument("--tail", action="store_true", help="only the late tail")
    options = parser.parse_args()
    if not options.tail:
        compare(options.build, options.rounds, options.only)
        if not options.only and shutil.which("nginx"):
            compare_nginx(options.build, options.rounds)
    if not options.only:
        compare_tail(options.build, min(options.rounds, 3))


if __name__ == "__main__":
    main()
