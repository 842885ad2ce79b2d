"""Text for the tokenizer goldens: sentences in many scripts, code, emoji, control and odd characters.

Everything here is written for this purpose; lines() mixes it with a fixed seed.
"""
import random
import unicodedata

SENTENCES = """
The quick brown fox jumps over the lazy dog while 3 engineers watch.
It's what they'd said: we'll see, I'm sure you've read it, and he's DON'T'd it.
WE'RE SHOUTING, IT'S LOUD, THEY'LL HEAR, I'D KNOW, YOU'VE WON, I'M OUT.
Gradient descent converges when the learning rate is small enough.
Training a language model needs data, patience and a good tokenizer.
The internationalization of uncharacteristically long words is antidisestablishmentarianism.
Der schnelle braune Fuchs springt über den faulen Hund; Größe, Maß und Übermut.
Die Donaudampfschifffahrtsgesellschaft fährt täglich außer sonntags.
Le cœur a ses raisons que la raison ne connaît point, n'est-ce pas ?
L'été dernier, j'ai mangé une crème brûlée à l'hôtel « Étoile ».
El niño comió piñas en la montaña; ¿cuándo volverá? ¡Mañana!
A ação não é fácil, mas o coração português é forte.
Il ragazzo è andato in città perché c'è più libertà.
Zażółć gęślą jaźń, a potem idź spać, źrebię.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép és két csésze tea.
Gleich morgen früh: Straßenbahn, Fußgänger, ẞ und ß.
Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul ve ılık ısı.
Høj bly gom vandt fræk sexquiz på wc; ærø, åben.
Ça va? Où est la bibliothèque?
Съешь же ещё этих мягких французских булок, да выпей чаю.
Широкая электрификация южных губерний даст мощный толчок подъёму.
Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне знаємо.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και το λέω δυνατά.
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر.
هذا اختبارٌ للكلمات العربيّة مع التشكيل ٠١٢٣٤٥٦٧٨٩.
دانشمندان ایرانی می‌گویند که این کتاب‌ها خوب‌اند ۱۲۳۴.
דג סקרן שט בים מאוכזב ולפתע מצא חברה; שָׁלוֹם עולם.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। १२३
সকল মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులు.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm.
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。
我们今天去北京大学学习机器学习和自然语言处理，共有123456个样本。
人人生而自由，在尊嚴和權利上一律平等，並應以兄弟關係的精神相對待。
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。
東京タワーは３３３メートルで、カタカナとひらがな、ｶﾀｶﾅも使います。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
გთხოვთ ახლავე გაიაროთ რეგისტრაცია უნიკოდის კონფერენციაზე.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ։
ሰው ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።
បុគ្គលគ្រប់រូបត្រូវកើតមកមានសេរីភាព និងសមភាព។
ທຸກຄົນເກີດມາມີກຽດສັກສີ ສິດທິ ເສຣີພາບ ແລະ ຄວາມສເມີພາບເທົ່າທຽມກັນ.
လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် မွေးဖွားလာသူများဖြစ်သည်။
Allir menn eru bornir frjálsir og jafnir öðrum að virðingu og réttindum; þetta er ðæð.
Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Binadamu wote wamezaliwa huru, hadhi na haki zao ni sawa.
Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama.
Ka lahi kanaka a pau; ʻO ka ʻōlelo Hawaiʻi kēia.
Mọi người đều có quyền được học, 1.234,56 đồng.
""".strip().split("\n")

CODE = r"""
def tokens_per_second(count: int, seconds: float) -> float:
    return count / max(seconds, 1e-9)  # never divide by 0
for i in range(0, len(xs), 32): batch = xs[i:i + 32]
class Loader(Source): pass
if (a && b || !c) { return x->y[i++] << 3; }
func (s *Stage) Receive(ctx Context, m Message) error {
	if err := s.step(ctx, m); err != nil {
		return fmt.Errorf("stage %d: %w", s.rank, err)
	}
}
#include <stdint.h>
static inline uint64_t mix(uint64_t x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdULL; return x; }
const total = items.filter(i => i.price > 9.99).map(({qty}) => qty * 2).reduce((a, b) => a + b, 0);
SELECT name, COUNT(*) AS n FROM users WHERE age >= 18 GROUP BY name HAVING n > 1 ORDER BY n DESC;
fn main() -> Result<(), Box<dyn Error>> { println!("{:?}", vec![1u8; 16]); Ok(()) }
<div class="card" style='margin:0 auto'><a href="https://example.org/a?b=c&amp;d=%20">link</a></div>
{"text": "a \"quoted\" \u00e9 string", "n": [1, 2.5e-3, -7, null, true]}
curl -sS -X POST http://127.0.0.1:8080/v1/run --data @body.json | jq '.items[] | .id'
$x = preg_replace('/\s+(?!\S)/', ' ', $y); // trailing
let re = /^(?:[a-z0-9]+\.)*[a-z]{2,}$/i;
        deeply(nested, indentation, with=8, spaces=True)
		two tabs here
x=1;y=2;z=x**y//3%4
0x7fffffff 0b1010 1_000_000 3.14159265358979 6.02e23 -40°C 100% $1,234.56 €99 ¥1000 ₹5
print(f"{name!r:>10} {value:.3f}")
git commit -m "Fix the off-by-one in the scanner" && git push
\documentclass{article} \begin{equation} \int_0^\infty e^{-x^2} dx = \frac{\sqrt{\pi}}{2} \end{equation}
""".strip("\n").split("\n")

ODD = [
    "😀😃😄 emoji 🎉🎊 party", "👨‍👩‍👧‍👦 family 👩🏽‍💻 coder 🏳️‍🌈 flag 🇩🇪🇯🇵🇧🇷", "❤️‍🔥 ☺️ ☹︎ 1️⃣2️⃣ #️⃣ ©️ ™️", "🤷🏻‍♀️🤷🏿‍♂️ ok",
    "e\u0301 u\u0308 n\u0303 A\u030a \u1112\u1161\u11ab o\u0302\u0323 \u0041\u0300\u0301\u0302",
    "\u212b \u2126 \uf900 \ufb01 \ufb03 \u00bd \u2460 \u3392 \uff21\uff22\uff23 \u1e9b\u0323",
    "\u0958 \u095c \u09dc \u0344 \u0374 \u037e \u0387 \u2000x\u2001y",
    "a\u00a0b\u2003c\u3000d\u200be\ufefff\u2028g\u2029h\u0085i", "tab\tseparated\tvalues\t\tdouble", "cr\r\nlf\n\nmixed\r\rends\n",
    "\n\n\n", "   leading and trailing   ", " \n \n  x", "x\n   \n\ty", "\t\n\r\x0b\x0c", "a  b   c    d     e      f       g        h",
    "\x00\x01\x02 nul soh stx \x07bell\x08\x1b[31mred\x1b[0m \x7f del \x80\x9f c1", "\x1c\x1d\x1e\x1f separators",
    "zero\u200dwidth\u200cjoiner\u2060word", "\u202eright to left\u202c override", "\ufffd \uffff \U0010ffff \ue000 private",
    "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛 𝒜𝓃𝒹 𐐷𐐯 𠜎𠜱𠝹 𒀀𒀁 𓂀𓃠 𝄞", "①②③ Ⅳ Ⅻ ⅷ ½ ¼ ٣٤ ४५ 五六 ², ³", "‘single’ “double” ‚low‘ „low“ ‹a› «b» — – - ‑ … • · ※ † ‡ § ¶",
    "☃★☆♠♣♥♦♪♫☎☏✂✈✉✌✍✏✒✔✖ ←↑→↓↔⇒∀∂∃∅∇∈∉∏∑√∞∧∨∩∪∫≈≠≤≥⊂⊃⊕⊗",
    "don'T WE'Ll i'D she'S it'ſ 'sand 'tis 'Reach 've'm ''s 'ſx o'clock rock'n'roll l'État ʼn ’s ’ll",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "==========----------__________..........!!!!!!!!!!??????????", "...wait... what?!?! (yes) [no] {maybe} <tag/> #hash @at $var ^caret ~tilde `tick` |pipe| \\back\\",
    "1234567890123456789012345678901234567890", "3.14.15 1,000,000 12:34:56 2026-01-31T23:59:59Z +49-30-123456 v1.2.3-rc.4", "\u0301\u0301\u0301", "",
    " ", "  ", "\n", "\t", "▁▁ lower one eighth ▁block▁ ▁", "Ġ byte Ċ level ĉ alphabet Â Ã letters Ł ń", "<0x41> <0x0A> <0xE2><0x96>", "<unk> <s> </s> <pad>",
    "<|begin_of_text|>hi<|eot_id|> there <|start_header_id|>user<|end_header_id|>\n\nx", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "<|im_start <|im_|im_end|> |>", "<s>[INST] hi [/INST] yo </s><s>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<MASK> the<MASK>  word <MASK>", "  <L>  both  <R>  sides<L><R>", "whole ONE wholeONE ONEs ONE.", "Café NORM café norm e\u0301 NORM",
    "\u16d0\u16b1\u16e8 runes \u13a0\u13b1 Cherokee \u1401\u1405 Inuktitut \ua500 Vai",
    "ﷺ ﷽ \u0600\u06dd ligatures", "i̇ İ I ı ǅ ǆ Ǆ ß ẞ ſ ﬀ", "한글 자모 \u1100\u1161 \u110b\u1161\u11ab \u314e\u314f\u3134", "ก็ ก้ำ เด็ก ๆ ฯลฯ", "क्षत्रिय ज्ञ श्र क़ \u0915\u093c",
]


def noise(rng):
    """A run of random characters, drawn from blocks that behave differently."""
    blocks = [(0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0x1100, 0x11ff), (0x2000, 0x206f),
              (0x2190, 0x27bf), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xfb00, 0xfdff), (0xff00, 0xffef), (0x1f300, 0x1faff), (0x10000, 0x1ffff), (0, 0x1f), (0x2f800, 0x2fa1d)]
    out = []
    for _ in range(rng.randint(1, 24)):
        lo, hi = rng.choice(blocks)
        run = [chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 3))]
        out.extend(c for c in run if unicodedata.category(c) != "Cn")
        if rng.random() < .2:
            out.append(rng.choice([" ", "  ", "\n", "\t", "'s", "'LL", "12", "1234"]))
    return "".join(out)


def shuffle_words(rng, s):
    words = s.split(" ")
    rng.shuffle(words)
    return rng.choice([" ", " ", " ", "  ", "\n", ", "]).join(words)


def line(rng):
    k = rng.random()
    if k < .34:
        s = rng.choice(SENTENCES)
        return rng.choice([s, s.upper(), s.lower(), s + " " + rng.choice(SENTENCES), unicodedata.normalize("NFD", s), shuffle_words(rng, s)])
    if k < .52:
        n = rng.randint(1, 4)
        at = rng.randrange(len(CODE) - n)
        return "\n".join(CODE[at:at + n]).replace("i", rng.choice(["i", "i", "idx", "k"]))
    if k < .68:
        return rng.choice(ODD) + rng.choice(["", " ", "\n"]) + rng.choice(ODD)
    if k < .80:
        return rng.choice(SENTENCES)[:rng.randint(1, 60)] + rng.choice(ODD) + rng.choice(CODE)[:rng.randint(1, 40)]
    if k < .86:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 12))) + rng.choice(["", " ", "kg ", ".5 "]) + str(rng.random())
    return noise(rng)


def lines(seed, n):
    rng = random.Random(seed)
    out = SENTENCES + CODE + ODD
    out += [line(rng) for _ in range(n - len(out))]
    return out[:n]
