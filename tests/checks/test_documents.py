"""What the documents show is compiled, and where they point there is something."""
import re
import subprocess

DECLARE_TRAIN = "static void train(const void *ids, const int64_t *shape, int ndim) { (void)ids, (void)shape, (void)ndim; }\n"


def documents(source):
    return [source / "README.md", source / "CONTRIBUTING.md", source / "CHANGES.md", *sorted((source / "docs").glob("*.md"))]


def test_the_program_in_the_readme_compiles(source):
    blocks = re.findall(r"```c\n(.*?)```", (source / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    code = blocks[0].replace("int main", DECLARE_TRAIN + "int main", 1)
    done = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{source / 'include'}", "-fsyntax-only", "-x", "c", "-"],
                          input=code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_between_documents_lead_somewhere(source):
    broken, count = [], 0
    for document in documents(source):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            count += 1
            if not (document.parent / target).exists():
                broken.append(f"{document.name}: {target}")
    assert count > 10 and not broken, broken


def test_commands_in_the_readme_exist(source, stoker):
    named = set(re.findall(r"build/cli/stoker (\w+)", (source / "README.md").read_text()))
    listed = stoker("--help").stdout
    assert len(named) >= 4 and all(re.search(rf"\b{verb}\b", listed) for verb in named), (named, listed)


def test_verbs_of_make_in_the_documents_exist(source):
    verbs = set(re.findall(r"^([a-z][a-z0-9-]*)(?: [a-z0-9-]+)*:", (source / "Makefile").read_text(), re.MULTILINE))
    for document in documents(source):
        named = set(re.findall(r"(?:^ {4}|`)make ([a-z0-9-]+)", document.read_text(), re.MULTILINE))
        assert named <= verbs, f"{document.name}: {named - verbs}"
