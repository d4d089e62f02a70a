"""Every source of credentials against look-alikes of its service: order, words of failure, refresh, and no secret in any message."""
import contextlib
import datetime
import http.server
import json
import os
import subprocess
import threading
import urllib.parse

import pytest

SECRET = "sEcReT/never+shown=0123456789"
TOKEN = "tOkEn-never-shown-0123456789"


def when(seconds):
    time = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


class Service:
    """Answers (method, path) from ``answers``: (status, body) or a callable on the request; keeps what was asked."""

    def __init__(self):
        self.answers, self.asked = {}, []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                path = self.path.split("?")[0]
                service.asked.append((self.command, self.path, dict(self.headers), body))
                found = service.answers.get((self.command, path), (404, ""))
                status, text = found(self, body) if callable(found) else found
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", text)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(text.encode())

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


@pytest.fixture
def identity(build, tmp_path):
    """Run the probe in an environment of nothing but what is given; files are written below HOME."""
    program = build / "tests" / "source" / "identity_probe"
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)

    def environment(given):
        return {"HOME": str(home), "PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true",
                **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}, **{k: str(v) for k, v in given.items()}}

    def get(*arguments, config=None, credentials=None, **given):
        if config is not None:
            (home / ".aws" / "config").write_text(config)
        if credentials is not None:
            (home / ".aws" / "credentials").write_text(credentials)
        done = subprocess.run([program, "get", *arguments], env=environment(given), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        answer = json.loads(done.stdout)
        if answer["status"] < 0:
            assert SECRET not in done.stdout and TOKEN not in done.stdout and "never" not in done.stdout
            assert len(answer["message"]) < 255, answer["message"]
        return answer

    @contextlib.contextmanager
    def watch(*arguments, **given):
        process = subprocess.Popen([program, "watch", *arguments], env=environment(given), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)

        def say(word=None):
            if word:
                process.stdin.write(word + "\n")
                process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield say
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdout.close()

    get.home, get.watch = home, watch
    return get


def is_from(answer, access, token=""):
    assert answer["status"] == 0, answer
    assert (answer["access"], answer["secret"], answer["token"]) == (access, SECRET, token)


ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": SECRET}
CREDENTIALS = f"[default]\naws_access_key_id = FILE\naws_secret_access_key = {SECRET}\n[other]\naws_access_key_id = OTHER\n" \
              f"aws_secret_access_key = {SECRET}\naws_session_token = {TOKEN}\n"


def container_json(access, seconds=3600, **more):
    return json.dumps({"AccessKeyId": access, "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": when(seconds), **more})


def sts_xml(access, seconds=3600):
    return f"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
        <Credentials><AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>
        <SessionToken>{TOKEN}</SessionToken><Expiration>{when(seconds)}</Expiration></Credentials>
        <AssumedRoleUser><Arn>arn:x</Arn></AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


def metadata(service, access="INSTANCE", seconds=3600, **more):
    role = "/latest/meta-data/iam/security-credentials/"
    with_token = lambda body: lambda request, _: (200, body) if request.headers.get("X-aws-ec2-metadata-token") == "SESSION" else (401, "")
    service.answers[("PUT", "/latest/api/token")] = (200, "SESSION")
    service.answers[("GET", role)] = with_token("my-role\n")
    service.answers[("GET", role + "my-role")] = with_token(container_json(access, seconds, Code="Success", **more))
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url, "AWS_EC2_METADATA_DISABLED": "false"}


# --- the order ---

def test_the_environment_comes_first(identity):
    is_from(identity(credentials=CREDENTIALS, **ENVIRONMENT), "ENV")
    is_from(identity(AWS_SESSION_TOKEN=TOKEN, **ENVIRONMENT), "ENV", TOKEN)
    is_from(identity(AWS_PROFILE="other", **ENVIRONMENT), "ENV")
    is_from(identity(AWS_ACCESS_KEY_ID="ENV\n", AWS_SECRET_ACCESS_KEY=" " + SECRET + "\n"), "ENV")


def test_an_explicit_profile_passes_the_environment_over(identity, service):
    is_from(identity("other", credentials=CREDENTIALS, **ENVIRONMENT), "OTHER", TOKEN)
    is_from(identity("other", AWS_WEB_IDENTITY_TOKEN_FILE="/nonexistent", AWS_ROLE_ARN="x"), "OTHER", TOKEN)


def test_the_credentials_file_comes_before_process_and_config_and_those_before_the_container(identity, service):
    process = identity.home / "process"
    process.write_text("#!/bin/sh\necho '" + json.dumps({"Version": 1, "AccessKeyId": "PROCESS", "SecretAccessKey": SECRET}) + "'\n")
    process.chmod(0o755)
    config = f"[default]\naws_access_key_id = CONFIG\naws_secret_access_key = {SECRET}\n"
    service.answers[("GET", "/c")] = (200, container_json("CONTAINER"))
    given = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url + "/c", **metadata(service)}
    is_from(identity(config=config + f"credential_process = {process}\n", credentials=CREDENTIALS, **given), "FILE")
    is_from(identity(credentials="", **given), "PROCESS")
    is_from(identity(config=config, **given), "CONFIG")
    is_from(identity(config="", **given), "CONTAINER", TOKEN)
    del given["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    is_from(identity(**given), "INSTANCE", TOKEN)


def test_web_identity_comes_before_the_files(identity, service):
    token = identity.home / "token"
    token.write_text("a.web.identity\n")
    service.answers[("POST", "/")] = (200, sts_xml("WEB"))
    is_from(identity(credentials=CREDENTIALS, AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN="arn:aws:iam::1:role/r+x",
                     AWS_ENDPOINT_URL_STS=service.url), "WEB", TOKEN)
    method, _, headers, body = service.asked[0]
    fields = dict(urllib.parse.parse_qsl(body))
    assert "Authorization" not in headers and method == "POST"
    assert fields["Action"] == "AssumeRoleWithWebIdentity" and fields["Version"] == "2011-06-15"
    assert fields["RoleArn"] == "arn:aws:iam::1:role/r+x" and fields["WebIdentityToken"] == "a.web.identity"
    assert fields["RoleSessionName"].startswith("stoker-")


def test_web_identity_of_a_profile(identity, service):
    token = identity.home / "token"
    token.write_text("eyJ" + "x" * 12000)
    service.answers[("POST", "/")] = (200, sts_xml("WEB"))
    config = f"[profile w]\nweb_identity_token_file = {token}\nrole_arn = arn:r\nrole_session_name = me\nservices = s\n" \
             f"[services s]\nsts =\n  endpoint_url = {service.url}/\n"
    is_from(identity("w", config=config), "WEB", TOKEN)
    assert dict(urllib.parse.parse_qsl(service.asked[0][3])) == {
        "Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:r", "RoleSessionName": "me",
        "WebIdentityToken": "eyJ" + "x" * 12000}


def test_anonymous_needs_no_source(identity):
    answer = identity(PROBE_ANONYMOUS="1")
    assert answer["status"] == 0 and answer["anonymous"] and answer["access"] == answer["secret"] == answer["token"] == ""


# --- region and endpoint ---

def test_region(identity):
    config = "[default]\nregion = of-config\n"
    assert identity(config=config, **ENVIRONMENT)["region"] == "of-config"
    assert identity(AWS_DEFAULT_REGION="of-default", **ENVIRONMENT)["region"] == "of-default"
    assert identity(AWS_DEFAULT_REGION="of-default", AWS_REGION="of-region", **ENVIRONMENT)["region"] == "of-region"
    assert identity("", "explicit", AWS_REGION="of-region", **ENVIRONMENT)["region"] == "explicit"
    assert identity(config="", **ENVIRONMENT)["region"] == "us-east-1"
    assert "eu-central-1" in identity(AWS_REGION="a.evil/", **ENVIRONMENT)["message"]


def test_endpoint(identity):
    config = "[default]\nendpoint_url = https://of-profile:1/\nservices = s\n[profile p]\nendpoint_url = https://of-profile/\n" \
             "[services s]\ns3 =\n  endpoint_url = http://of-services:2\n"
    host = lambda answer: (answer["host"], answer["port"], answer["tls"])
    assert host(identity(config=config, **ENVIRONMENT)) == ("of-services", 2, False)
    assert host(identity(AWS_PROFILE="p", **ENVIRONMENT)) == ("of-profile", 443, True)
    given = {"AWS_ENDPOINT_URL": "http://any:3", **ENVIRONMENT}
    assert host(identity(**given)) == ("any", 3, False)
    given["AWS_ENDPOINT_URL_S3"] = "http://s3.only/"
    assert host(identity(**given)) == ("s3.only", 80, False)
    assert host(identity("", "", "https://explicit", **given)) == ("explicit", 443, True)
    assert host(identity(AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true", **given)) == ("", 443, True)


def test_addressing_and_ca(identity):
    config = "[default]\nca_bundle = /of/profile\ns3 =\n  addressing_style = virtual\n"
    answer = identity(config=config, **ENVIRONMENT)
    assert answer["addressing"] == 2 and answer["ca"] == "/of/profile"
    assert identity(AWS_CA_BUNDLE="/of/variable", **ENVIRONMENT)["ca"] == "/of/variable"
    assert "addressing_style" in identity(config="[default]\ns3 =\n  addressing_style = odd\n", **ENVIRONMENT)["message"]


def test_where_the_files_lie(identity, tmp_path):
    (tmp_path / "elsewhere").write_text(CREDENTIALS.replace("FILE", "ELSEWHERE"))
    is_from(identity(AWS_SHARED_CREDENTIALS_FILE=tmp_path / "elsewhere"), "ELSEWHERE")
    (identity.home / "mine").write_text(CREDENTIALS.replace("FILE", "MINE"))
    is_from(identity(AWS_SHARED_CREDENTIALS_FILE="~/mine"), "MINE")
    is_from(identity(AWS_DEFAULT_PROFILE="other", AWS_SHARED_CREDENTIALS_FILE="~/mine"), "OTHER", TOKEN)


# --- failures in words ---

def fails(answer, *words):
    assert answer["status"] < 0, answer
    for word in words:
        assert word in answer["message"], answer
    return answer


def test_no_credentials_names_every_source(identity, service):
    fails(identity(), "no credentials found", "environment", "web identity", "shared files", "credential_process", "container",
          "instance metadata (switched off)", "anonymous")
    service.answers[("PUT", "/latest/api/token")] = (403, "")
    fails(identity(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url), "no credentials found", "HTTP 403",
          "AWS_EC2_METADATA_V1_DISABLED=false")


@pytest.mark.parametrize("keys", ["role_arn = arn:r\nsource_profile = base", "role_arn = arn:r\ncredential_source = Environment",
                                  "sso_session = s\nsso_account_id = 1", "sso_start_url = https://x", "login_session = arn:x"])
def test_profiles_of_the_aws_tools_get_the_line_that_helps(identity, keys):
    answer = identity("train", config=f"[profile train]\n{keys}\n[profile base]\nregion = x\n")
    fails(answer, "credential_process = aws configure export-credentials --profile train")


def test_a_missing_profile_is_named(identity):
    fails(identity("nobody", credentials=CREDENTIALS), "nobody", "credentials file")
    fails(identity(AWS_PROFILE="nobody2", **ENVIRONMENT), "nobody2")


def test_half_a_pair_is_refused(identity):
    fails(identity(AWS_ACCESS_KEY_ID="ENV"), "AWS_SECRET_ACCESS_KEY")
    fails(identity(credentials="[default]\naws_access_key_id = x\n"), "no secret key")
    fails(identity(AWS_ACCESS_KEY_ID="A\r\nX-Evil: never", AWS_SECRET_ACCESS_KEY=SECRET), "control character")
    fails(identity(AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN="never\x01" + TOKEN), "control character")


def test_a_broken_file_is_named_and_not_quoted(identity):
    answer = fails(identity(credentials=f"[default]\n{TOKEN}\n"), "neither a [section] nor key = value")
    assert answer["file"].endswith(".aws/credentials")


def test_a_process_that_fails(identity):
    def run(line):
        return identity(config=f"[default]\ncredential_process = {line}\n")
    fails(run(f"sh -c 'echo {SECRET} >&2; exit 3'"), "status 3", "by hand")
    fails(run("sh -c 'kill -9 $$'"), "signal 9")
    fails(run("/nonexistent/program --token never"), "/nonexistent/program", "not there")
    fails(run(f"echo {SECRET}"), "JSON")
    fails(run("""echo '{"Version": 2, "AccessKeyId": "A", "SecretAccessKey": "never"}'"""), "version")
    fails(run("""echo '{"Version": 1, "SecretAccessKey": "never"}'"""), "no access key")
    fails(run("head -c 70000 /dev/zero"), "64 KiB")
    fails(run("sh -c 'unclosed"), "open")
    fails(run("''"), "not there")


def test_a_process_is_run_without_a_shell_and_with_quotes(identity):
    program = identity.home / "a program"
    program.write_text("#!/bin/sh\nprintf '{\"Version\": 1, \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"" + SECRET + "\"}' \"$1$2$#\"\n")
    program.chmod(0o755)
    config = f"[default]\ncredential_process = \"{program}\" '$HOME;' \\*\n"
    is_from(identity(config=config), "$HOME;*2")


def test_web_identity_that_fails(identity, service):
    token = identity.home / "token"
    given = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": service.url}
    fails(identity(**given), "AWS_ROLE_ARN")
    given["AWS_ROLE_ARN"] = "arn:r"
    fails(identity(**given), "token file", "not there")
    token.write_text("\n")
    fails(identity(**given), "holds no token")
    token.write_text(TOKEN)
    error = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>%s</Message></Error></ErrorResponse>"
    service.answers[("POST", "/")] = (403, error % "Not authorized to perform sts:AssumeRoleWithWebIdentity")
    fails(identity(**given), "HTTP 403", "AccessDenied", "Not authorized", "trust policy")
    service.answers[("POST", "/")] = (400, error % ("bad token " + TOKEN[3:]))
    fails(identity(**given), "HTTP 400")
    service.answers[("POST", "/")] = (200, "<x>")
    fails(identity(**given), "XML")
    service.answers[("POST", "/")] = (200, sts_xml("WEB").replace("<Expiration>", "<Other>").replace("</Expiration>", "</Other>"))
    fails(identity(**given), "Expiration")
    before = len(service.asked)
    service.answers[("POST", "/")] = (503, "")
    fails(identity(**given), "HTTP 503")
    assert len(service.asked) - before == 3


def test_container_rules(identity, service):
    token = identity.home / "token"
    token.write_text("of-file\n")
    service.answers[("GET", "/c")] = (200, container_json("CONTAINER"))
    given = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url + "/c", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "of-variable"}
    is_from(identity(**given), "CONTAINER", TOKEN)
    assert service.asked[-1][2]["Authorization"] == "of-variable"
    is_from(identity(AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token, **given), "CONTAINER", TOKEN)
    assert service.asked[-1][2]["Authorization"] == "of-file"
    token.write_text("never\r\nX-Evil: 1")
    fails(identity(AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token, **given), "line break")
    service.answers[("GET", "/c")] = (401, "never")
    fails(identity(**given), "HTTP 401", "role")
    service.answers[("GET", "/c")] = (302, service.url + "/d")
    service.answers[("GET", "/d")] = (200, container_json("REDIRECTED"))
    fails(identity(**given), "HTTP 302")
    service.answers[("GET", "/c")] = (200, "x" * 70000)
    fails(identity(**given), "64 KiB")
    service.answers[("GET", "/c")] = (200, container_json("CONTAINER", seconds=-10))
    fails(identity(**given), "expired")
    fails(identity(AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="no-slash"), "RELATIVE_URI")


@pytest.mark.parametrize("url", ["http://192.0.2.1/c", "http://10.0.0.1/c", "http://169.254.1.1/c", "http://[fe80::1]/c",
                                 "http://[::ffff:10.0.0.1]/c", "http://0.0.0.0/c"])
def test_plain_http_leaves_this_machine_for_no_one(identity, url):
    fails(identity(AWS_CONTAINER_CREDENTIALS_FULL_URI=url), "use https")


def test_a_proxy_gets_no_plain_request(identity, service):
    service.answers[("GET", "/c")] = (200, container_json("CONTAINER"))
    is_from(identity(AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url + "/c", http_proxy="http://127.0.0.1:1"), "CONTAINER", TOKEN)


def test_instance_metadata(identity, service):
    given = metadata(service)
    is_from(identity(**given), "INSTANCE", TOKEN)
    put = service.asked[0]
    assert put[:2] == ("PUT", "/latest/api/token") and put[2]["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
    metadata(service, "INSTANCE", seconds=-3600)        # its own trouble: it hands on old ones, and the store takes them
    is_from(identity(**given), "INSTANCE", TOKEN)
    path = "/latest/meta-data/iam/security-credentials/"
    service.answers[("GET", path + "my-role")] = (200, '{"Code": "AssumeRoleUnauthorizedAccess"}')
    fails(identity(**given), "no credentials found", "AssumeRoleUnauthorizedAccess")
    service.answers[("GET", path)] = (200, "\n")
    fails(identity(**given), "no role")
    service.answers[("GET", path)] = (200, "../../a b?c")
    fails(identity(**given), "HTTP 404")
    assert service.asked[-1][1] == path + "..%2F..%2Fa%20b%3Fc"


def test_version_1_only_where_it_is_allowed(identity, service):
    path = "/latest/meta-data/iam/security-credentials/"
    service.answers = {("GET", path): (200, "r"), ("GET", path + "r"): (200, container_json("V1"))}
    given = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url, "AWS_EC2_METADATA_DISABLED": "false"}
    fails(identity(**given), "HTTP 404")
    assert [asked[0] for asked in service.asked] == ["PUT"]
    is_from(identity(AWS_EC2_METADATA_V1_DISABLED="false", **given), "V1", TOKEN)


def test_attempts_of_instance_metadata(identity, service):
    given = metadata(service)
    service.answers[("PUT", "/latest/api/token")] = (500, "")
    fails(identity(AWS_METADATA_SERVICE_NUM_ATTEMPTS="2", **given), "HTTP 500")
    assert len(service.asked) == 2


# --- refresh ---

@pytest.mark.parametrize("source", ["container", "web identity"])
def test_refresh_before_expiry_in_the_background(identity, service, source):
    """Lives of 4 s: each is renewed in its last second, a quarter, and nobody has to ask.  The web's token is that of the file then."""
    token = identity.home / "token"
    token.write_text("first")
    count = iter(range(1, 100))
    service.answers[("GET", "/c")] = lambda *_: (200, container_json(f"C{next(count)}", seconds=4))
    service.answers[("POST", "/")] = lambda *_: (200, sts_xml(f"C{next(count)}", seconds=4))
    given = {"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url + "/c"},
             "web identity": {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:r", "AWS_ENDPOINT_URL_STS": service.url}}[source]
    with identity.watch(**given) as say:
        first = say()
        is_from(first, "C1", TOKEN)
        token.write_text("second")
        later = say("next")
        assert later["refreshes"] >= 1 and later["access"] != "C1" and later["expires_at"] > first["expires_at"]
        assert source == "container" or "WebIdentityToken=second" in service.asked[-1][3]


def test_forced_refresh_after_the_store_said_expired(identity, service):
    token = identity.home / "token"
    token.write_text("first")
    count = iter(range(1, 100))
    service.answers[("POST", "/")] = lambda *_: (200, sts_xml(f"W{next(count)}"))
    with identity.watch(AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN="arn:r", AWS_ENDPOINT_URL_STS=service.url) as say:
        first = say()
        is_from(first, "W1", TOKEN)
        token.write_text("second")
        second = say("refresh")
        is_from(second, "W2", TOKEN)
        assert second["generation"] > first["generation"] and second["refreshes"] == 1
        assert "WebIdentityToken=second" in service.asked[-1][3]       # the file is read again
        service.answers[("POST", "/")] = (400, "")
        fails(say("refresh"), "HTTP 400")
        service.answers[("POST", "/")] = (200, sts_xml("W3"))
        is_from(say("refresh"), "W3", TOKEN)


def test_lasting_credentials_that_the_store_calls_expired(identity):
    with identity.watch(**ENVIRONMENT) as say:
        is_from(say(), "ENV")
        fails(say("refresh"), "environment", "expired", "start again")


def test_files_are_read_again(identity):
    credentials = identity.home / ".aws" / "credentials"
    credentials.write_text(CREDENTIALS)
    with identity.watch() as say:
        is_from(say(), "FILE")
        fails(say("refresh"), "shared credentials file", "no newer ones")
        credentials.write_text(CREDENTIALS.replace("FILE", "NEWER"))
        is_from(say("refresh"), "NEWER")
        credentials.write_text("[default]\nregion = x\n")
        fails(say("refresh"), "shared credentials file", "none any more")


def test_a_failed_refresh_leaves_the_old_ones(identity, service):
    """A life of 16 s is renewed at 12 s; the service fails from then on, and the old ones are handed out to their end."""
    answers = iter([(200, container_json("FIRST", seconds=16))])
    service.answers[("GET", "/c")] = lambda *_: next(answers, (500, ""))
    with identity.watch(AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url + "/c") as say:
        is_from(say(), "FIRST", TOKEN)
        is_from(say("next"), "FIRST", TOKEN)


def test_closing_does_not_wait_for_a_slow_service(identity):
    """The probe is stopped while its process sleeps; the sleeper and what it started are gone."""
    pid = identity.home / "pid"
    program = identity.home / "slow"
    program.write_text(f"#!/bin/sh\nif [ -e {pid} ]; then sleep 300 & echo $! > {pid}.2; wait; fi; echo $$ > {pid}\n"
                       "when=$(date -u -d '+3 seconds' +%Y-%m-%dT%H:%M:%SZ)\n"
                       f'echo \'{{"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "{SECRET}", "Expiration": "\'$when\'"}}\'\n')
    program.chmod(0o755)
    (identity.home / ".aws" / "config").write_text(f"[default]\ncredential_process = {program}\n")
    with identity.watch() as say:
        is_from(say(), "P")
        import time
        for _ in range(3000):
            if (identity.home / "pid.2").exists() and (identity.home / "pid.2").read_text().endswith("\n"):
                break
            time.sleep(0.02)
        sleeper = int((identity.home / "pid.2").read_text())
    for _ in range(3000):
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(sleeper)], capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            break
        time.sleep(0.02)
    assert not state or state.startswith("Z")
