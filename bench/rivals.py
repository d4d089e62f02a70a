#!/usr/bin/env python3
"""One other S3 client: COUNT whole objects into memory, IN_FLIGHT at a time, twice; one line of JSON about the second pass.

    .venv-rivals/bin/python bench/rivals.py NAME URL COUNT IN_FLIGHT

NAME: obstore-threads, obstore-asyncio, s3torch (as shipped), s3torch-tuned, boto3, s3fs, s5cmd.  Keys are those of bench_store.c.
CPU time and memory are the process's and its children's; s5cmd writes to a folder in memory and has one pass.
"""
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

OBJECTS = 2000


def threaded(in_flight, fetch):
    pool = ThreadPoolExecutor(in_flight)
    return lambda keys: sum(pool.map(fetch, keys))


def obstore_client(url, in_flight):
    from obstore.store import S3Store
    return S3Store("b", endpoint=url, region="us-east-1", access_key_id="AK", secret_access_key="SK", virtual_hosted_style_request=False,
                   client_options={"allow_http": True, "pool_max_idle_per_host": str(in_flight)})


def obstore_threads(url, in_flight):
    client = obstore_client(url, in_flight)
    return threaded(in_flight, lambda key: len(client.get(key).bytes()))


def obstore_asyncio(url, in_flight):
    client, loop = obstore_client(url, in_flight), asyncio.new_event_loop()

    async def all_of(keys):
        gate = asyncio.Semaphore(in_flight)

        async def one(key):
            async with gate:
                return len(await (await client.get_async(key)).bytes_async())
        return sum(await asyncio.gather(*map(one, keys)))
    return lambda keys: loop.run_until_complete(all_of(keys))


def s3torch(url, in_flight, **more):
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
    client = MountpointS3Client(region="us-east-1", endpoint=url, force_path_style=True, **more)
    return threaded(in_flight, lambda key: sum(map(len, client.get_object("b", key))))


def boto3_threads(url, in_flight):
    import boto3
    from botocore.config import Config
    client = boto3.client("s3", endpoint_url=url, config=Config(max_pool_connections=in_flight, s3={"addressing_style": "path"}))
    return threaded(in_flight, lambda key: len(client.get_object(Bucket="b", Key=key)["Body"].read()))


def s3fs_cat(url, in_flight):
    import s3fs
    fs = s3fs.S3FileSystem(endpoint_url=url, config_kwargs={"max_pool_connections": in_flight, "s3": {"addressing_style": "path"}})
    return lambda keys: sum(map(len, fs.cat(["b/" + key for key in keys], batch_size=in_flight).values()))


def s5cmd(url, in_flight):
    def fetch(keys):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            subprocess.run([os.path.dirname(sys.executable) + "/s5cmd", "--endpoint-url", url, "--numworkers", str(in_flight), "cp", "s3://b/img/*",
                            folder + "/"], stdout=subprocess.DEVNULL, check=True)
            return sum(e.stat().st_size for e in os.scandir(folder))
    return fetch


CLIENTS = {"obstore-threads": obstore_threads, "obstore-asyncio": obstore_asyncio, "s3torch": s3torch,
           "s3torch-tuned": lambda url, n: s3torch(url, n, throughput_target_gbps=100.0), "boto3": boto3_threads, "s3fs": s3fs_cat, "s5cmd": s5cmd}


def cpu_seconds():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def main():
    name, url, count, in_flight = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    fetch = CLIENTS[name](url, in_flight)
    for _ in range(1 if name == "s5cmd" else 2):
        wall, cpu, got = time.monotonic(), cpu_seconds(), 0
        for first in range(0, count, OBJECTS):  # a mapping from keys holds each once
            got += fetch([f"img/{i:05d}.jpg" for i in range(min(OBJECTS, count - first))])
        wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "bytes": got, "count": count, "failed": 0, "peak_mb": peak / 1024}), flush=True)
    os._exit(0)  # some of these clients' threads do not end


if __name__ == "__main__":
    main()
