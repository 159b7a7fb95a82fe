"""Training, queries, scores, phrases and exports write and split the words of all scripts alike."""

import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from app.evaluation.benchmarks import score_pairs
from app.evaluation.lexicon import find_rows, make_lexicon
from app.exporting import saved_model, static_embedding
from app.settings import CorpusConfig
from app.text import unicode_rules
from app.text.phrase_table import PhraseTable, make_phrase_splitter
from app.text.tokenize import LONGEST_TOKEN, make_tokenizer
from app.types import WordVectors

# A text, and the words that a reader of the language sees in it, in folded case.
READ = [
    ("Turkish", "İstanbul", "istanbul"),
    ("Turkish", "İZMİR güzel", "izmir güzel"),
    ("Turkish", "DİYARBAKIR", "diyarbakir"),
    ("Arabic", "كِتَابٌ", "كِتَابٌ"),
    ("Arabic", "السَّلامُ عَلَيْكُم!", "السَّلامُ عَلَيْكُم"),
    ("Arabic", "١٩٩٠ كـتاب", "١٩٩٠ كـتاب"),
    ("Persian", "می‌خواهم", "میخواهم"),
    ("Persian", "کتاب‌ها؟", "کتابها"),
    ("Hebrew", "שָׁלוֹם", "שָׁלוֹם"),
    ("Hebrew", 'צה"ל', "צה״ל"),
    ("Hebrew", "ג'ירפה", "ג׳ירפה"),
    ("Hindi", "हिन्दी में।", "हिन्दी में"),
    ("Hindi", "क्षत्रिय १२", "क्षत्रिय १२"),
    ("Bengali", "বাংলা\u09ad\u09be\u09b7\u09be", "বাংলা\u09ad\u09be\u09b7\u09be"),
    ("Tamil", "தமிழ் மொழி", "தமிழ் மொழி"),
    ("Sinhala", "ශ්\u200dරී ලංකා", "ශ්රී ලංකා"),
    ("Malayalam", "മലയാളം", "മലയാളം"),
    ("Khmer", "ភាសា\u200bខ្មែរ", "ភាសា ខ្មែរ"),
    ("Khmer", "សួស្តី។", "សួស្តី"),
    ("Burmese", "မြန်မာ စာ။", "မြန်မာ စာ"),
    ("Thai", "ภาษา\u200bไทย ๒๕๖๔", "ภาษา ไทย ๒๕๖๔"),
    ("Lao", "ພາສາ ລາວ", "ພາສາ ລາວ"),
    ("Tibetan", "བོད་ཡིག།", "བོད ཡིག"),
    ("Amharic", "ሰላም፡ለዓለም።", "ሰላም ለዓለም"),
    ("Japanese", "スーパー", "スーパー"),
    ("Japanese", "らーめん", "らーめん"),
    ("Japanese", "ﾃﾞｰﾀ、人々", "データ 人々"),
    ("Chinese", "二〇二一年，中国", "二〇二一年 中国"),
    ("Korean", "한국어 2020년", "한국어 2020 년"),
    ("Russian", "за\u0301мок", "за\u0301мок"),
    ("Russian", "ВСЁ же", "всё же"),
    ("Ukrainian", "м'яч, п’ять", "мʼяч пʼять"),
    ("Greek", "Οδός", "οδόσ"),
    ("Greek", "ΆΝΘΡΩΠΟΣ·", "άνθρωποσ"),
    ("German", "Straße", "strasse"),
    ("German", "Zucker\u00adrüben", "zuckerrüben"),
    ("French", "ﬁne cafe\u0301", "fine café"),
    ("Catalan", "col·legi", "col·legi"),
    ("Yoruba", "ẹ́kọ́", "ẹ́kọ́"),
    ("Vietnamese", "Tiếng Việt", "tiếng việt"),
    ("Hawaiian", "Hawaiʻi", "hawaiʻi"),
    ("Armenian", "Ինչո՞ւ։", "ինչո՞ւ"),
    ("Georgian", "ქართული ᲔᲜᲐ", "ქართული ენა"),
    ("English", "The don't (1,000) x2 $3.14.", "the don t 1,000 x 2 3.14"),
]  # fmt: skip

# First and last letters of blocks of 24 scripts, with the marks between them.
PAIRS = (
    "az AZ ßſ İı ΆϏ Ѐԯ Աև את ء٩ ܐݏ अ९ ক৯ ਅ੯ અ૯ அ௯ అ౯ ಅ೯ അ൯ අ෦ ก๛ ກໝ ཀ྿ က႟ აჿ 가갿 ሀ፿ ក៹ ᠀ᡸ ぁゟ "
    "ァヿ 一丿 Ꭰ\u13ff ᾀ῾"
)
BLOCKS = PAIRS.split()
JOINERS = "\u200c\u200d\u00ad\ufe0f\u2060\ufeff\u061c\u180b\u034f\u115f"
MARKS = "\u0301\u0307\u0323\u0327\u0345\u0342\u064b\u0651\u094d\u093c\u3099\u20e3\u0e31\u1039\u0903"
SIGNS = " \u200b\t\u3000\u2028\u0085.,-'’\"·!?$€()—…、。،؟।፡་❤🙂¨½²"
FORMS = [CorpusConfig(tokenizer="unicode", fold_case=folds) for folds in (True, False)]


# Of a version of Unicode that every library has.
CHARACTERS = [
    (character, unicodedata.ucd_3_2_0.category(character))
    for first, last in BLOCKS
    for character in map(chr, range(ord(first), ord(last) + 1))
]


def is_letter(character):
    """Whether it is a letter, also in NFKC: the Thai vowel ำ begins with a mark there."""
    kinds = [unicodedata.category(part)[0] for part in unicodedata.normalize("NFKC", character)]
    return kinds[0] == "L" and {*kinds} <= {"L", "M"}


SCRIPTS = [
    [
        character
        for character, kind in CHARACTERS
        if first <= character <= last and is_letter(character)
    ]
    for first, last in BLOCKS
]
OTHERS = [character for character, kind in CHARACTERS if kind[0] in "MNPS"]


def draw_words(draw, count):
    """Words of one script each, of letters, marks and invisible characters, in some normal form."""
    words = []
    for _ in range(count):
        script, word = draw.choice(SCRIPTS), ""
        for _ in range(draw.randrange(1, 6)):
            word += draw.choice(script) + draw.choice(["", "", "", draw.choice(MARKS)])
            word += draw.choice(["", "", draw.choice(JOINERS)])
        words.append(unicodedata.normalize(draw.choice(["NFC", "NFD", "NFKC", "NFKD"]), word))
    return words


def draw_texts(draw, count):
    """Texts of such words with signs, digits and white space between them, or nothing."""
    texts = []
    for _ in range(count):
        parts = draw_words(draw, draw.randrange(1, 5))
        others = draw.choices(OTHERS, k=9)
        between = [*SIGNS, "", "1", "23", "٤", "५", " ", " ", *MARKS[:3], *others]
        parts = [part + draw.choice(between) + draw.choice(between) for part in parts]
        texts.append("".join(parts))
    return texts


def train(texts, config, phrases=()):
    """The tokens of texts, as a map of tf.data makes them for training."""
    split = make_phrase_splitter(config, phrases) if phrases else make_tokenizer(config)
    dataset = tf.data.Dataset.from_tensors(tf.constant(texts)).map(split)
    return [[token.decode() for token in row] for row in next(iter(dataset)).to_list()]


def vectors_of(tokens, config):
    matrix = np.random.default_rng(0).normal(size=(len(tokens), 8)).astype(np.float32)
    return WordVectors(list(tokens), matrix, form=unicode_rules.normal_form(config))


def unique(tokens):
    return list(dict.fromkeys(token for row in tokens for token in row))


def test_the_words_that_a_reader_expects():
    found = train([text for _, text, _ in READ], FORMS[0])
    assert [" ".join(words) for words in found] == [words for *_, words in READ]
    assert len({language for language, *_ in READ}) >= 20


@pytest.mark.parametrize("config", FORMS, ids=["folded", "as written"])
def test_random_texts_of_all_scripts_are_split_alike(config, tmp_path):
    texts = draw_texts(random.Random(1), 1000)
    found = train(texts, config)
    tokens = unique(found)
    assert unicode_rules.normalize(tokens, unicode_rules.normal_form(config)) == tokens
    # No token is of signs or marks alone, is invisible, or is cut before a mark.
    kinds = ["".join(unicodedata.category(letter)[0] for letter in token) for token in tokens]
    assert all({"L", "N"} & set(kind) for kind in kinds)
    assert not any(kind.startswith("M") or "Z" in kind or "C" in kind for kind in kinds)
    pytest.importorskip("tokenizers")
    model2vec = pytest.importorskip("model2vec")
    static_embedding.write(vectors_of(tokens, config), tmp_path / "out", config, 0.0)
    tokenizer = model2vec.StaticModel.from_pretrained(tmp_path / "out").tokenizer
    split = [encoding.tokens for encoding in tokenizer.encode_batch(texts)]
    assert [pair for pair in zip(split, found, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("config", FORMS, ids=["folded", "as written"])
def test_every_trained_word_is_found_as_it_is_written_in_the_text(config, tmp_path):
    words = draw_words(random.Random(2), 1000)
    found = train(words, config)
    asked = {word: row[0] for word, row in zip(words, found, strict=True) if len(row) == 1}
    assert len(asked) > 500
    vectors = vectors_of(unique(found), config)
    for case in ("fold", "exact"):
        lexicon = make_lexicon(vectors, case)
        spellings = {word: [vectors.tokens[r] for r in find_rows(lexicon, word)] for word in asked}
        assert [word for word, token in asked.items() if token not in spellings[word]] == []
    queries = [*asked]
    pairs = zip(queries[::2], queries[1::2], strict=False)
    (tmp_path / "pairs").write_text(
        "".join(f"{a}\t{b}\t{n}\n" for n, (a, b) in enumerate(pairs)), encoding="utf-8"
    )
    scored = score_pairs(make_lexicon(vectors), tmp_path / "pairs", "own")
    assert (scored.used, scored.skipped) == (len(queries) // 2, 0)
    assert scored.words == f"0 of {len(queries) // 2 * 2:,} words unknown"
    saved_model.write(vectors, tmp_path / "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    answer = model.signatures["lookup"](words=tf.constant(queries))
    rows = [vectors.tokens.index(asked[word]) for word in queries]
    np.testing.assert_array_equal(answer["vectors"], vectors.matrix[rows])
    # A phrase of two of them is joined, and found with a space.
    first, second = list(asked.values())[:2]
    table = PhraseTable([(first, second)], np.ones(1, np.int64), np.ones(1))
    text = " ".join(queries[:2])
    assert train([text], config, (table,)) == [[f"{first}_{second}"]]
    assert find_rows(make_lexicon(vectors_of([f"{first}_{second}"], config)), text) == (0,)


def test_python_and_the_graph_normalize_every_character_alike():
    kinds = {chr(code): unicodedata.category(chr(code)) for code in range(0x20000)}
    letters = [c for c in kinds if kinds[c] not in ("Cs", "Co", "Cn") and not is_plain(c)]
    words = [f"x{a}{b}y" for a, b in zip(letters, letters[1:], strict=False)]
    words += draw_texts(random.Random(3), 1000)
    for form in (unicode_rules.NFKC, unicode_rules.FOLDED):
        found = unicode_rules.normalize(words, form)
        in_graph = unicode_rules.normalize_strings(tf.constant(words), form).numpy().tolist()
        pairs = zip(found, map(bytes.decode, in_graph), strict=True)
        assert [pair for pair in pairs if pair[0] != pair[1]] == []
        again = zip(found, unicode_rules.normalize(found, form), strict=True)
        assert [pair for pair in again if pair[0] != pair[1]] == []


def is_plain(character):
    """Whether it is of the thousands of letters that have no other form."""
    return any(low <= character <= high for low, high in ["㐀鿿", "가힣", "\U00012000\U00018cff"])


def test_ascii_text_is_split_into_letters_and_other_characters():
    draw = random.Random(4)
    alphabet = "abXYZ019 .,'-$()\t_\x00\x1c"
    texts = ["".join(draw.choices(alphabet, k=30)) for _ in range(2000)]
    for drops in (False, True):
        config = CorpusConfig(tokenizer="unicode", drop_punctuation=drops)
        assert train(texts, config) == [ascii_tokens(text, drops) for text in texts]


def ascii_tokens(text, drops):
    """Runs of letters, and runs of other characters, without signs at their ends if `drops`."""
    runs, before = [], None
    for character in text.lower():
        kind = None if character in " \t" else character.isalpha()
        if kind is not None:
            runs[-1:] = [runs[-1] + character] if kind == before else [*runs[-1:], character]
        before = kind
    if drops:
        signs = "".join(character for character in map(chr, range(128)) if not character.isalnum())
        runs = [run.strip(signs) for run in runs]
    return [run for run in runs if run]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("这是一个没有空格的句子，我们不知道词在哪里。" * 9, "Chinese"),
        ("これは空白のない文章です。東京タワーへ行きました。" * 9, "Japanese"),
        ("ภาษาไทยเขียนติดกันโดยไม่เว้นวรรค " * 9, "Thai"),
        ("ភាសាខ្មែរសរសេរជាប់គ្នាគ្មានដកឃ្លា។ " * 9, "Khmer"),
        ("这 是 一个 有 空格 的 句子 ， 我们 知道 词 在 哪里 。 " * 9, None),
        ("ភាសា\u200bខ្មែរ\u200bសរសេរ\u200bជាប់\u200bគ្នា" * 9, None),
        ("English text that quotes 没有空格的句子 once. " + "And goes on for long. " * 20, None),
        ("", None),
    ],
)
def test_text_without_spaces_is_recognized(text, language):
    found = unicode_rules.unspaced_language(text)
    assert (language in found) if language else found is None


# A curly quote, a ligature, a wide space, Han before Latin, an Arabic digit.
TEXT = "The don\u2019t (1,000) 3.14, x2! \ufb01ne STRA\u00dfE\u3000\u4e2d\u6587abc - $5 \u0661"
AS_WRITTEN = {"fold_case": False, "drop_punctuation": False}


def tokens(texts, **settings):
    dataset = tf.data.Dataset.from_tensors(tf.constant(texts))
    ragged = next(iter(dataset.map(make_tokenizer(CorpusConfig(**settings)))))
    return [[token.decode() for token in row] for row in ragged.to_list()]


def test_whitespace_splits_at_any_white_space_and_nowhere_else():
    assert tokens(["a\tb  C-d\u00a0e\u3000f\r\n", "", " ", "x\0y"], tokenizer="whitespace") == [
        ["a", "b", "C-d", "e", "f"],
        [],
        [],
        ["x\0y"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        (TEXT, {}, "the don t 1,000 3.14 x 2 fine strasse \u4e2d\u6587 abc 5 \u0661"),
        ("--", {}, ""),
        (TEXT, {"drop_numbers": True}, "the don t x fine strasse \u4e2d\u6587 abc"),
        ("Wait... (12) U.S.", AS_WRITTEN, "Wait ... (12) U . S ."),
        ("Wait... (12) U.S.", {**AS_WRITTEN, "drop_numbers": True}, "Wait ... U . S ."),
        ("cafe\u0301 \uff21\uff22", {}, "caf\u00e9 ab"),
    ],
)
def test_options_of_unicode_tokens(text, settings, expected):
    assert tokens([text, ""], tokenizer="unicode", **settings) == [expected.split(), []]


@pytest.mark.slow
def test_white_space_always_splits():
    draw = random.Random(4)
    alphabet = "ab1 2.,$\u00e9\u4e2d\u30fc\u3042\u0661\u0301\u2028\u0085\n\t\v\f\r"
    texts = ["".join(draw.choices(alphabet, k=30)) for _ in range(2000)]
    words = [text.split() for text in texts]
    assert tokens(texts, tokenizer="whitespace") == words
    settings = {"tokenizer": "unicode", **AS_WRITTEN}
    pieces = iter(tokens([word for row in words for word in row], **settings))
    expected = [[piece for _ in row for piece in next(pieces)] for row in words]
    assert tokens(texts, **settings) == expected


@pytest.mark.parametrize("safe", [True, False])
def test_whitespace_is_the_same_in_any_locale(monkeypatch, safe):
    if not safe:
        # As where the C library takes bytes above 0x7F for white space.
        monkeypatch.setattr(tf.strings, "split", lambda texts: tf.ragged.constant([["x", "y"]]))
    found = make_tokenizer(CorpusConfig())(tf.constant(["\u00e0 b\u3000c\u00a0\u00e0", ""]))
    assert found.to_list() == [["\u00e0".encode(), b"b", b"c", "\u00e0".encode()], []]


@pytest.mark.parametrize("name", ["whitespace", "unicode"])
def test_a_token_that_is_too_long_is_dropped(name):
    longest, longer = "a" * LONGEST_TOKEN, "a" * (LONGEST_TOKEN + 1)
    texts = [f"one {longer} two", longest, longer, "\u00e9" * (LONGEST_TOKEN // 2 + 1)]
    assert tokens(texts, tokenizer=name) == [["one", "two"], [longest], [], []]
