"""A line of the user's code in a report: it is recognised, and no secret in it can be read."""

import tokenize

import pytest

from lightning_gpuprof.model.shown_code import shown_code, shown_lines


@pytest.mark.parametrize(
    "code",
    [
        "loss = self(batch)",
        'self.log("train/loss", loss, on_step=True)',
        "x = x.to('cuda:0', non_blocking=True)",
        'x = torch.einsum("bhqd,bhkd->bhqk", q, k)',
        'print(f"{loss:.3f} in {step}")',
        'Trainer(precision="bf16-mixed", max_steps=10000)',
        'text = data.decode("utf-8")',
        'ids = self.tokenizer(batch["text"], max_length=4096).tokens',
        "time.sleep(0.5)",
        "name = ''",
    ],
)
def test_ordinary_code_stays_as_it_is(code: str) -> None:
    assert shown_code(code) == code


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ('db.query("select", password="hunter2")', 'db.query("***", password="***")'),
        ("client = Client(api_key='abc')", "client = Client(api_key='***')"),
        ("os.environ['WANDB_API_KEY'] = 'abc'", "os.environ['***'] = '***'"),
        ('requests.post(url, headers={"Authorization": "Bearer abc"})', 'requests.post(url, headers={"***": "***"})'),
        ('requests.get(url, auth=("me", "pw"))', 'requests.get(url, auth=("***", "***"))'),
        ('smtp.login("me", "pw")', 'smtp.login("***", "***")'),
        ("psycopg2.connect('dbname=a user=b')", "psycopg2.connect('***')"),
        ('engine = create_engine("postgres://u:pw@h/db")', 'engine = create_engine("***")'),
        ('fetch("https://h/a?sig=abc")', 'fetch("***")'),
        ('fetch("https://hooks/services/abc")', 'fetch("***")'),
        ('load("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgHi")', 'load("***")'),
        ('load("AKIAIOSFODNN7EXAMPLE")', 'load("***")'),
        ('load("p@ssword!")', 'load("***")'),
        ("load(b'0f3c')", "load(b'***')"),
        ('call(f"-H x {a} 12ab")', 'call(f"***")'),
        ('call("""one "hunter2" two""")', 'call("""***""")'),
        (r'call("a\"hunter2\"")', 'call("***")'),
        ("unlock(pin=1234, door=1)", "unlock(pin=***, door=1)"),
        ("x = y  # the password is hunter2", "x = y"),
        ('sql = "select hunter2', 'sql = "***'),
    ],
)
def test_what_may_be_secret_is_hidden(code: str, shown: str) -> None:
    assert shown_code(code) == shown


def test_a_word_that_nothing_calls_a_secret_stays() -> None:
    assert shown_code('greet("correct horse")') == 'greet("correct horse")'


def test_of_a_file_comments_empty_lines_and_long_strings_are_left_out() -> None:
    source = [
        "'''Train.",
        "password: hunter2",
        "'''",
        "# token hunter2",
        "",
        "import os  # it's \"hunter2",
        'KEY = "hunter2"  # "',
        "path = 'data/train'",
        'text = f"""',
        "  {KEY} '# hunter2'",
        '"""; batch = 64',
    ]
    assert list(shown_lines("\n".join(source))) == [
        "import os",
        'KEY = "***"',
        "path = 'data/train'",
        'text = f"""***"""; batch = 64',
    ]


@pytest.mark.parametrize(
    "source",
    [
        'PASSWORD = "abc\\\nhunter2"',
        'login(\n    "hunter",\n)',
        'connect(\n    host, (\n    "hunter"))',
        "f\"{login('hunter')}\"",
        "def f():\n  'Ask hunter for it.'\n  pw = 'hunter'",
        "class A:\n  '''hunter\n  2'''\n  key = 'hunter'",
    ],
)
def test_secrets_in_several_lines_are_hidden(source: str) -> None:
    assert "hunter" not in "\n".join(shown_lines(source))


def test_statements_keep_their_lines() -> None:
    source = "if a:\n    b = call(\n        1,\n    )  # c\n\nelse:\n    pass\n"
    assert list(shown_lines(source)) == ["if a:", "    b = call(", "        1,", "    )", "else:", "    pass"]


def test_what_is_no_python_is_an_error() -> None:
    with pytest.raises((SyntaxError, tokenize.TokenError)):
        list(shown_lines("a = (\n"))
