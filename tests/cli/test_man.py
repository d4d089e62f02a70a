"""Manual pages and completion: made from the commands and the option table, so nothing is missing; clean for groff; of use in bash."""
import json
import re
import shutil
import subprocess

import pytest

SHELLS = {"bash": "stoker.bash", "zsh": "_stoker", "fish": "stoker.fish"}


@pytest.fixture(scope="module")
def options(stoker):
    return json.loads(stoker("options", "--json").stdout)["options"]


@pytest.fixture(scope="module")
def flags(stoker):
    """The flags of each command, as its help lists them."""
    commands = re.findall(r"^  ([\w-]+) ", stoker("--help").stdout, re.MULTILINE)
    assert len(commands) >= 8
    return {name: re.findall(r"^  (--\S+)", stoker(name, "--help").stdout, re.MULTILINE) for name in commands}


@pytest.fixture(scope="module", params=["1", "5"])
def page(request, stoker):
    return request.param, stoker("options", "--man", request.param).stdout


def shown(page):
    """As a reader sees it, without breaks of lines and words."""
    done = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-P-bou", "-rHY=0", "-rLL=400n"], input=page, capture_output=True,
                          text=True, check=True)
    return re.sub(r"\s+", " ", done.stdout)


def test_groff_has_nothing_to_say(page):
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8"], input=page[1], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_stoker_1_has_every_command_flag_and_status(stoker, flags):
    text = shown(stoker("options", "--man", "1").stdout)
    for command, names in flags.items():
        summary = stoker(command, "--help").stdout.split("\n\n")[1]
        assert summary in text and f"stoker {command} " in text
        assert all(f" {name} " in text for name in names), (command, names)
    assert all(f" {status} " in text for status in (0, 1, 2, 3, 130))
    assert all(name in text for name in ("STK_CPU", "STK_PYTHON", "NO_COLOR", "TMPDIR", "stoker.yaml(5)"))


def test_stoker_yaml_5_has_all_that_the_table_says(stoker, options):
    text = shown(stoker("options", "--man", "5").stdout)
    for option in options:
        name = option["name"].removeprefix("data[].")
        parts = [option["type"]]
        if option["choices"]:
            parts[0] += ": " + option["choices"]
        if option.get("maximum"):
            low, high = option["minimum"], option["maximum"]
            parts.append(f"at least {low}" if high > 2 ** 60 else f"{low} to {high}")
        if option["default"]:
            parts.append("default " + option["default"])
        assert f" {name} ({'; '.join(parts)}) {option['help']}." in text, option
    assert text.count("Changes the stream.") == sum(o["stream"] for o in options)
    assert text.count("May also stand under a data set.") == sum(o["per_set"] for o in options)


def test_a_build_makes_what_an_installation_takes(build, stoker):
    installed = json.loads((build / "meson-info/intro-installed.json").read_text())
    places = {"stoker.1": "/man/man1/", "stoker.yaml.5": "/man/man5/", "stoker.bash": "/bash-completion/completions/",
              "_stoker": "/zsh/site-functions/", "stoker.fish": "/fish/vendor_completions.d/"}
    for name, place in places.items():
        assert installed[str(build / "cli" / name)].endswith(place + name)
    assert (build / "cli/stoker.1").read_text() == stoker("options", "--man", "1").stdout
    assert (build / "cli/stoker.bash").read_text() == stoker("options", "--completion", "bash").stdout


def test_other_pages_and_shells_are_refused(stoker):
    assert "1 or 5" in stoker("options", "--man", "7", status=2).stderr
    assert "bash, zsh or fish" in stoker("options", "--completion", "tcsh", status=2).stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_flag_stands_in_the_script(shell, stoker, flags):
    text = stoker("options", "--completion", shell).stdout
    for command, names in flags.items():
        assert command in text
        for name in names:
            if shell == "fish":
                assert re.search(rf"_from [^']*\b{command}\b[^']*' -l {re.escape(name[2:])} ", text), (command, name)
            else:
                begin = text.index(f"\n    {command})")
                assert re.search(rf"['* ]{re.escape(name)}[=\[ ']", text[begin:text.index(";;\n", text.index("esac" if shell == "bash" else ";;", begin))]), (
                    command, name)
    if shutil.which(shell):  # its own parser
        subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True, check=True)


@pytest.fixture(scope="module")
def complete(build, stoker):
    """What bash offers for the last of some words."""
    script = stoker("options", "--completion", "bash").stdout

    def run(*words, cwd=None):
        program = script + 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stoker; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", program, "bash", "stoker", *words], capture_output=True, text=True, cwd=cwd, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return run


def test_bash_completes_commands_and_flags(complete, flags):
    assert complete("") == [*flags, "--help", "--version"]
    assert complete("re") == ["replay"]
    for command, names in flags.items():
        assert complete(command, "-") == names
    assert complete("run", "c.yaml", "--limits.js") == ["--limits.json-depth"]
    assert complete("version", "--mi") == [] and complete("unknown", "-") == []


def test_bash_completes_what_stands_behind_a_flag(complete, options, tmp_path):
    """Choices; both ways to write a value; files where a file is meant; nothing where anything may stand."""
    for option in options:
        if option["choices"] and not option["name"].startswith("data"):
            words = option["choices"].split(" | ")
            name = "--" + option["name"].replace("_", "-")
            assert complete("run", "c.yaml", name, "") == words
            assert complete("index", name, "=", words[-1][:2]) == [w for w in words if w.startswith(words[-1][:2])]
            assert complete("index", name, "=") == words
    (tmp_path / "stoker.yaml").touch()
    (tmp_path / "list of ids").mkdir()
    assert complete("run", "st", cwd=tmp_path) == ["stoker.yaml"]
    assert complete("run", "--index-dir", "", cwd=tmp_path) == ["list", "of", "ids", "stoker.yaml"]
    assert complete("run", "--resume", "st", cwd=tmp_path) == ["stoker.yaml"]
    assert complete("init", "m.jsonl", "-o", "st", cwd=tmp_path) == ["stoker.yaml"]
    assert complete("run", "--shuffle", "") == ["true", "false"]
    assert complete("run", "--workers", "") == ["auto", "inline"]
    assert complete("options", "--completion", "") == [*SHELLS]
    assert complete("run", "--batch", "", cwd=tmp_path) == []
