"""A caller who may read some objects and not others, and may not list: policies that moto checks."""
import dataclasses
import json

import pytest
import servers
from probe import is_whole


@pytest.fixture
def reader(moto):
    """May get what lies under tests/open/, and nothing else."""
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::tests/open/*"}]}
    servers.iam(moto, Action="CreateUser", UserName="reader")
    made = servers.iam(moto, Action="CreateAccessKey", UserName="reader")
    servers.iam(moto, Action="PutUserPolicy", UserName="reader", PolicyName="some", PolicyDocument=json.dumps(policy))
    moto.put("tests", "open/a", b"for all")
    moto.put("tests", "closed/a", b"for some")
    yield dataclasses.replace(moto, key=made["AccessKeyId"], secret=made["SecretAccessKey"])
    servers.iam(moto, Action="DeleteUserPolicy", UserName="reader", PolicyName="some")
    servers.iam(moto, Action="DeleteAccessKey", UserName="reader", AccessKeyId=made["AccessKeyId"])
    servers.iam(moto, Action="DeleteUser", UserName="reader")


def test_403_of_one_object_is_its_own_once_another_could_be_read(reader, probe):
    p = probe(reader.environment())
    assert is_whole(p.get("s3://tests/open/a"), b"for all")
    refused = p.get("s3://tests/closed/a")
    assert refused["status"] == "STK_ERR_SYSTEM" and "may not list" in refused["message"], refused
    assert is_whole(p.get("s3://tests/open/a"), b"for all")


def test_403_of_all_that_was_asked_stops_the_run(reader, probe):
    refused = probe(reader.environment()).get("s3://tests/closed/a")
    assert refused["status"] == "STK_ERR_NETWORK" and "s3:GetObject" in refused["message"] and reader.secret not in json.dumps(refused), refused


def test_what_else_is_not_allowed_names_its_right(reader, probe):
    p = probe(reader.environment())
    assert is_whole(p.get("s3://tests/open/a"), b"for all")
    listed = p.ask("list", address="s3://tests/open/")
    assert listed["status"] == "STK_ERR_NETWORK" and "may not be listed" in listed["message"] and "s3:ListBucket" in listed["message"], listed
    put = p.ask("put", address="s3://tests/open/b", text="mine")
    assert put["status"] == "STK_ERR_NETWORK" and "may not be written" in put["message"] and "s3:PutObject" in put["message"], put
