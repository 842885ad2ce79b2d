package maths

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// draw draws a pair of a form: one that is to be equal, or one in which a number differs.
type draw struct {
	*rand.Rand
	equal bool
}

func (d *draw) n(from, to int) int { return from + d.IntN(to-from+1) }

// other is the number itself for an equal pair, else another.
func (d *draw) other(n int) int {
	if d.equal {
		return n
	}
	return n + d.n(1, 4)
}

func (d *draw) of(all ...string) string { return all[d.IntN(len(all))] }

// letters are symbols that have no other meaning.
func (d *draw) letter() string { return d.of("x", "y", "n", "k") }

func f(format string, a ...any) string { return fmt.Sprintf(format, a...) }

// thousands writes a number in groups of three.
func thousands(n int, sep string) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + sep + s[i:]
	}
	return s
}

// lists writes two numbers in an order by chance.
func (d *draw) order(a, b string, sep string) string {
	if d.IntN(2) == 0 {
		return a + sep + b
	}
	return b + sep + a
}

// form is a way of writing answers.
type form struct {
	name string
	pair func(d *draw) (gold, answer string)
	// ours says why this form is compared otherwise than math-verify does, empty where it is not.
	ours string
}

var forms = []form{
	{"integer", func(d *draw) (string, string) {
		n := d.n(-999, 9999)
		return f("%d", n), f(d.of("%d", " %d ", "{%d}", "%d\\,"), d.other(n))
	}, ""},
	{"minus sign of Unicode", func(d *draw) (string, string) {
		n := d.n(1, 999)
		return f("-%d", n), f(d.of("−%d", "- %d", "-{%d}"), d.other(n))
	}, ""},
	{"decimal", func(d *draw) (string, string) {
		n := d.n(1, 99999)
		return f("%d.%03d", n/1000, n%1000), f("%d.%03d%s", d.other(n)/1000, d.other(0)+n%1000, d.of("",
			"0", "00"))
	}, ""},
	{"decimal without its zero", func(d *draw) (string, string) {
		n := d.n(100, 900)
		return f("0.%d", n), f(".%d", d.other(n))
	}, ""},
	{"decimal and whole", func(d *draw) (string, string) {
		n := d.n(1, 500)
		return f("%d", n), f("%d.%s", d.other(n), d.of("0", "00", "000"))
	}, ""},
	{"decimal to six places", func(d *draw) (string, string) {
		a, b := d.n(1, 30), d.n(2, 29)
		return f(`\frac{%d}{%d}`, a, b), f("%.*f", d.n(6, 10), float64(d.other(a*1000))/float64(1000*b))
	}, ""},
	{"thousands with commas", func(d *draw) (string, string) {
		n := d.n(1000, 99_999_999)
		return f("%d", n), thousands(d.other(n), ",")
	}, ""},
	{"thousands with {,}", func(d *draw) (string, string) {
		n := d.n(1000, 99_999_999)
		return thousands(n, "{,}"), thousands(d.other(n), d.of("{,}", ",", ""))
	}, ""},
	{"thousands with ,\\!", func(d *draw) (string, string) {
		n := d.n(1000, 9_999_999)
		return thousands(n, `,\!`), thousands(d.other(n), d.of(`,\!`, ",", ""))
	}, ""},
	{"frac", func(d *draw) (string, string) {
		a, b, k := d.n(1, 60), d.n(2, 40), d.n(1, 4)
		return f(`\frac{%d}{%d}`, a, b), f(`%s{%d}{%d}`, d.of(`\frac`, `\dfrac`, `\tfrac`, `\cfrac`),
			d.other(a)*k, b*k)
	}, ""},
	{"frac without braces", func(d *draw) (string, string) {
		a, b := d.n(1, 5), d.n(2, 9)
		return f(`\frac{%d}{%d}`, a, b), f(`\frac%d%d`, d.other(a), b)
	}, ""},
	{"slash", func(d *draw) (string, string) {
		a, b := d.n(1, 60), d.n(2, 40)
		return f(`\frac{%d}{%d}`, a, b), f(d.of("%d/%d", "%d / %d"), d.other(a), b)
	}, ""},
	{"fraction and decimal", func(d *draw) (string, string) {
		a := d.n(1, 99)
		return f(`\frac{%d}{8}`, a), f("%.3f", float64(d.other(a))/8)
	}, ""},
	{"negative fraction", func(d *draw) (string, string) {
		a, b := d.n(1, 60), d.n(2, 40)
		return f(`-\frac{%d}{%d}`, a, b), f(d.of(`\frac{-%d}{%d}`, `-%d/%d`, `\frac{%d}{-%d}`), d.other(a), b)
	}, ""},
	{"mixed number", func(d *draw) (string, string) {
		w, a, b := d.n(1, 12), d.n(1, 8), d.n(9, 15)
		return f(`%d\frac{%d}{%d}`, w, a, b), f(`\frac{%d}{%d}`, d.other(w*b+a), b)
	}, ""},
	{"mixed number, both", func(d *draw) (string, string) {
		w, b := d.n(1, 12), d.n(2, 9)
		return f(`%d\frac{1}{%d}`, w, b), f(d.of(`%d\frac1%d`, `%d \frac{1}{%d}`, `%d\tfrac{1}{%d}`),
			d.other(w), b)
	}, ""},
	{"per cent", func(d *draw) (string, string) {
		n := d.n(1, 150)
		return f(`%d\%%`, n), f(d.of(`%d\%%`, "%d", "%d percent", `%d\text{ percent}`), d.other(n))
	}, ""},
	{"per cent and its value", func(d *draw) (string, string) {
		n := d.n(1, 99)
		return f(`%d\%%`, n), f(d.of("0.%02d", `\frac{%d}{100}`), d.other(n))
	}, ""},
	{"decimal per cent", func(d *draw) (string, string) {
		n := d.n(10, 900)
		return f(`%d.%d\%%`, n/10, n%10), f("0.%04d", d.other(n)*10)
	}, ""},
	{"dollars", func(d *draw) (string, string) {
		n := d.n(1, 2000)
		return f("%d", n), f(d.of(`\$%d`, `\$%d.00`, `%d\text{ dollars}`, `\$ %d`), d.other(n))
	}, ""},
	{"words that are no unit of math-verify's", func(d *draw) (string, string) {
		n := d.n(1, 2000)
		return f("%d", n), f("%d %s", d.other(n), d.of("dollars", "tickets", "chickens"))
	}, "math-verify has a list of units, without these"},
	{"unit as text", func(d *draw) (string, string) {
		n := d.n(1, 2000)
		return f("%d", n), f(`%d%s`, d.other(n), d.of(`\text{ cm}`, `\text{ inches}`, `\text{ cm}^2`,
			`\mbox{ cm}^3`,
			`\,\text{m/s}`, `\text{ miles per hour}`, `\mathrm{~kg}`, `\text{ units}^{2}`))
	}, ""},
	{"unit in words", func(d *draw) (string, string) {
		n := d.n(1, 2000)
		return f("%d", n), f(`%d %s`, d.other(n), d.of("cm", "kg", "miles", "hours", "students", "apples",
			"minutes", "mph"))
	}, ""},
	{"degrees", func(d *draw) (string, string) {
		n := d.n(1, 360)
		return f(d.of("%d", `%d^\circ`), n), f(d.of(`%d^\circ`, `%d^{\circ}`, "%d degrees",
			`%d\text{ degrees}`), d.other(n))
	}, ""},
	{"power", func(d *draw) (string, string) {
		b, e := d.n(2, 9), d.n(2, 9)
		v := 1
		for range e {
			v *= b
		}
		return f(d.of("%d^{%d}", "%d^%d"), b, e), f("%d", d.other(v))
	}, ""},
	{"power of ten", func(d *draw) (string, string) {
		a, e := d.n(2, 9), d.n(2, 7)
		return f(`%d%s10^{%d}`, a, d.of(`\times `, `\cdot `), e), f("%d%s", d.other(a), strings.Repeat("0",
			e))
	}, ""},
	{"negative power of ten", func(d *draw) (string, string) {
		a, e := d.n(2, 5), d.n(2, 4)
		return f(`%d\times 10^{-%d}`, a, e), f("0.%s%d", strings.Repeat("0", e-1), d.other(a))
	}, ""},
	{"root", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.of("2", "3", "5", "6", "7")
		var r int
		fmt.Sscan(b, &r)
		return f(`%d\sqrt{%s}`, a, b), f(d.of(`\sqrt{%d}`, `\sqrt {%d}`), d.other(a*a*r))
	}, ""},
	{"root without braces", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.n(2, 5)
		return f(`%d\sqrt{%d}`, a, b), f(`%d\sqrt%d`, a, d.other(b))
	}, ""},
	{"root of Unicode", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.n(2, 9)
		return f(`%d\sqrt{%d}`, a, b), f(`%d√%d`, a, d.other(b))
	}, "math-verify does not read √"},
	{"cube root", func(d *draw) (string, string) {
		a, b := d.n(2, 5), d.n(2, 9)
		return f(`%d\sqrt[3]{%d}`, a, b), f(`\sqrt[3]{%d}`, d.other(a*a*a*b))
	}, ""},
	{"root below a fraction", func(d *draw) (string, string) {
		a, b := d.n(1, 9), d.n(2, 19)
		return f(`\frac{%d}{\sqrt{%d}}`, a, b), f(`\frac{%d\sqrt{%d}}{%d}`, d.other(a), b, b)
	}, ""},
	{"sum with a root", func(d *draw) (string, string) {
		a, b, c := d.n(1, 9), d.n(2, 9), d.of("2", "3", "5", "7")
		return f(`%d+%d\sqrt{%s}`, a, b, c), f(`%d\sqrt{%s}+%d`, b, c, d.other(a))
	}, ""},
	{"fraction with a root", func(d *draw) (string, string) {
		a, c, b := d.n(1, 9), d.of("2", "3", "5", "7"), d.n(2, 9)
		return f(`\frac{%d+\sqrt{%s}}{%d}`, a, c, b), f(`\frac{%d}{%d}+\frac{\sqrt{%s}}{%d}`, d.other(a), b,
			c, b)
	}, ""},
	{"pi", func(d *draw) (string, string) {
		a, b := d.n(1, 60), d.n(2, 13)
		return f(`\frac{%d\pi}{%d}`, a, b), f(d.of(`\frac{%d}{%d}\pi`, `%d\pi/%d`), d.other(a), b)
	}, ""},
	{"pi to six places", func(d *draw) (string, string) {
		a := d.n(1, 60)
		return f(`%d\pi`, a), f(`%.6f`, float64(d.other(a))*3.141592653589793)
	}, ""},
	{"power of e", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.n(2, 9)
		return f(`%de^{%d}`, a, b), f(`e^{%d} \cdot %d`, d.other(b), a)
	}, ""},
	{"logarithm", func(d *draw) (string, string) {
		b, e := d.n(2, 9), d.n(2, 6)
		v := 1
		for range e {
			v *= b
		}
		return f("%d", e), f(d.of(`\log_{%d}{%d}`, `\log_{%d}(%d)`, `\log_%d %d`), b, v*(1+d.other(0)))
	}, ""},
	{"natural logarithm", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.n(2, 9)
		return f(`\ln(%d)`, a*b), f(`\ln %d+\ln %d`, a, d.other(b))
	}, ""},
	{"sine and cosine", func(d *draw) (string, string) {
		a := d.n(2, 19)
		return f(`\sin^2(%d)`, a), f(`1-\cos^2(%d)`, d.other(a))
	}, ""},
	{"tangent of pi", func(d *draw) (string, string) {
		a := d.n(5, 19)
		return f(`\tan\frac{\pi}{%d}`, a), f(`\frac{\sin(\pi/%d)}{\cos(\pi/%d)}`, a, d.other(a))
	}, ""},
	{"sine of degrees", func(d *draw) (string, string) {
		return `\frac{1}{2}`, f(`\sin(%d^\circ)`, d.other(30))
	}, "math-verify leaves ° out within functions, so that the sine of 30° is that of 30 radians"},
	{"factorial", func(d *draw) (string, string) {
		a := d.n(3, 12)
		v := 1
		for i := 2; i < a; i++ {
			v *= i
		}
		return f(`%d!`, a), f("%d", v*d.other(a))
	}, ""},
	{"binomial", func(d *draw) (string, string) {
		a := d.n(4, 20)
		return f(d.of(`\binom{%d}{2}`, `\dbinom{%d}{2}`), a), f("%d", d.other(a*(a-1)/2))
	}, ""},
	{"complex number", func(d *draw) (string, string) {
		a, b := d.n(1, 20), d.n(2, 20)
		return f("%d+%di", a, b), f("%di+%d", b, d.other(a))
	}, ""},
	{"pair", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(-9, 20)
		return f("(%d,%d)", a, b), f(d.of("(%d, %d)", `\left(%d,%d\right)`, `(%d,\ %d)`), a, d.other(b))
	}, ""},
	{"pair of fractions", func(d *draw) (string, string) {
		a, b, c := d.n(-9, 20), d.n(2, 8), d.n(1, 20)
		return f(`\left(\frac{%d}{%d},%d\right)`, a, b, c), f(`(%d/%d, %d)`, d.other(a), b, c)
	}, ""},
	{"triple", func(d *draw) (string, string) {
		a, b, c := d.n(-9, 20), d.n(21, 40), d.n(50, 60)
		if !d.equal && d.IntN(2) == 0 {
			return f("(%d,%d,%d)", a, b, c), f("(%d,%d,%d)", b, a, c)
		}
		return f("(%d,%d,%d)", a, b, c), f("(%d, %d, %d)", a, b, d.other(c))
	}, ""},
	{"interval", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(25, 40)
		l, r := d.of("(", "["), "]"
		if d.equal {
			return f("%s%d,%d%s", l, a, b, r), f(`\left%s%d, %d\right%s`, l, a, b, r)
		}
		return f("%s%d,%d%s", l, a, b, r), f("%s%d, %d%s", l, a, d.other(b), d.of(r, ")"))
	}, ""},
	{"interval without end", func(d *draw) (string, string) {
		a := d.n(-9, 20)
		return f(`[%d,\infty)`, a), f(d.of(`[%d, \infty)`, `\left[%d,+\infty\right)`), d.other(a))
	}, ""},
	{"interval with ∞", func(d *draw) (string, string) {
		a := d.n(-9, 20)
		return f(`[%d,\infty)`, a), f(`[%d, ∞)`, d.other(a))
	}, "math-verify does not read ∞"},
	{"union", func(d *draw) (string, string) {
		a, b := d.n(-19, 0), d.n(5, 40)
		u, v := f(`(-\infty,%d)`, a), f(`(%d,\infty)`, b)
		return u + `\cup ` + v, d.order(f(`(-\infty, %d)`, d.other(a)), v, `\cup`)
	}, ""},
	{"set", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(25, 40)
		return f(`\{%d,%d\}`, a, b), `\{` + d.order(f("%d", a), f("%d", d.other(b)), ", ") + `\}`
	}, ""},
	{"list", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(25, 40)
		return f(`%d,%d`, a, b), d.order(f("%d", a), f("%d", d.other(b)), d.of(", ", ",", `,\ `))
	}, ""},
	{"list with and", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(25, 40)
		return f(`%d, %d`, a, b), d.order(f("%d", a), f("%d", d.other(b)), d.of(" and ", `\text{ and }`,
			`\text{ or }`))
	}, ""},
	{"list of fractions", func(d *draw) (string, string) {
		a, b := d.n(1, 20), d.n(25, 40)
		return f(`\frac{%d}{7},\frac{%d}{3}`, a, b), d.order(f("%d/7", a), f(`\frac{%d}{3}`, d.other(b)),
			", ")
	}, ""},
	{"list of pairs", func(d *draw) (string, string) {
		a, b := d.n(1, 20), d.n(25, 40)
		return f(`(%d,%d),(%d,%d)`, a, b, b, a), d.order(f("(%d,%d)", a, b), f("(%d,%d)", b, d.other(a)),
			", ")
	}, ""},
	{"plus or minus", func(d *draw) (string, string) {
		a, b := d.n(1, 20), d.of("2", "3", "5")
		if d.IntN(2) == 0 {
			return f(`%d\pm\sqrt{%s}`, a, b), f(`%d \pm \sqrt{%s}`, d.other(a), b)
		}
		return f(`%d\pm\sqrt{%s}`, a, b), d.order(f(`%d+\sqrt{%s}`, a, b), f(`%d-\sqrt{%s}`, d.other(a), b),
			", ")
	}, ""},
	{"assignment in the answer", func(d *draw) (string, string) {
		n := d.n(-9, 200)
		return f("%d", n), f(d.of("x=%d", "y = %d", "n=%d"), d.other(n))
	}, ""},
	{"assignment in the gold", func(d *draw) (string, string) {
		n := d.n(-9, 200)
		return f("%s=%d", d.letter(), n), f("%d", d.other(n))
	}, ""},
	{"assignment in both", func(d *draw) (string, string) {
		n, x := d.n(-9, 200), d.letter()
		y := x
		if !d.equal && d.IntN(3) == 0 {
			y = "z"
		}
		return f("%s=%d", x, n), f("%s = %d", y, d.other(n))
	}, ""},
	{"equation in the answer", func(d *draw) (string, string) {
		a, b := d.n(2, 20), d.n(2, 20)
		return f("%d", a*b), f(`%d \cdot %d = %d`, a, b, d.other(a*b))
	}, ""},
	{"line", func(d *draw) (string, string) {
		a, b := d.n(2, 20), d.n(2, 20)
		return f("y=%dx+%d", a, b), f(d.of("y=%d+%dx", "y = %d + %d x"), d.other(b), a)
	}, ""},
	{"linear equation", func(d *draw) (string, string) {
		a, b, c, k := d.n(2, 9), d.n(2, 9), d.n(1, 20), d.n(2, 4)
		return f("%dx+%dy=%d", a, b, c), f("%dx+%dy=%d", a*k, b*k, d.other(c)*k)
	}, ""},
	{"inequality", func(d *draw) (string, string) {
		a, x := d.n(-9, 20), d.letter()
		return f(`%s \le %d`, x, a), f(d.of(`%d \ge %s`, `%d \geq %s`), d.other(a), x)
	}, ""},
	{"double inequality", func(d *draw) (string, string) {
		a, b := d.n(-9, 20), d.n(25, 40)
		return f(`%d < x < %d`, a, b), f(`%d<x<%d`, a, d.other(b))
	}, ""},
	{"text", func(d *draw) (string, string) {
		days := []string{"Monday", "Tuesday", "Thursday", "Friday", "Evelyn", "east", "even", "odd", "Spring"}
		i := d.IntN(len(days))
		return f(`\text{%s}`, days[i]), f(d.of(`\text{%s}`, `\mathrm{%s}`, `\textbf{%s}`),
			days[d.other(i)%len(days)])
	}, ""},
	{"choice", func(d *draw) (string, string) {
		i := d.n(0, 3)
		return f(d.of("%c", `\text{%c}`), 'A'+i), f(d.of(`\text{(%c)}`, `\textbf{(%c)}`, "%c", "(%c)"),
			'A'+d.other(i)%5)
	}, ""},
	{"polynomial", func(d *draw) (string, string) {
		a, b, x := d.n(1, 9), d.n(1, 9), d.letter()
		return f("%s^2+%d%s+%d", x, a, x, b), f("%d+%d%s+%s^{2}", d.other(b), a, x, x)
	}, ""},
	{"factored polynomial", func(d *draw) (string, string) {
		a, b := d.n(1, 9), d.n(1, 9)
		return f("x^2+%dx+%d", a+b, a*b), f("(x+%d)(x+%d)", a, d.other(b))
	}, ""},
	{"rational function", func(d *draw) (string, string) {
		a, b := d.n(1, 9), d.n(2, 9)
		return f(`\frac{x+%d}{x-%d}`, a, b), f(`1+\frac{%d}{x-%d}`, d.other(a+b), b)
	}, ""},
	{"several variables", func(d *draw) (string, string) {
		a, b := d.n(2, 9), d.n(2, 9)
		return f("%dp^2q+%dr", a, b), f("%dr+%dqp^2", d.other(b), a)
	}, ""},
	{"matrix", func(d *draw) (string, string) {
		a, b := d.n(-9, 9), d.n(-9, 9)
		return f(`\begin{pmatrix} %d & 2 \\ 3 & %d \end{pmatrix}`, a, b),
			f(`\begin{%s}%d&2\\3&%d\end{%[1]s}`, d.of("pmatrix", "bmatrix"), a, d.other(b))
	}, ""},
	{"vector", func(d *draw) (string, string) {
		a, b := d.n(-9, 9), d.n(-9, 9)
		return f(`\begin{pmatrix} %d \\ %d \end{pmatrix}`, a, b), f(`\begin{pmatrix}%d\\%d\end{pmatrix}`, a,
			d.other(b))
	}, ""},
	{"ratio", func(d *draw) (string, string) {
		a, b := d.n(1, 20), d.n(1, 20)
		return f("%d:%d", a, b), f(d.of("%d:%d", "%d : %d", `\frac{%d}{%d}`), d.other(a), b)
	}, ""},
	{"absolute value", func(d *draw) (string, string) {
		a := d.n(2, 20)
		return f("%d", a), f(`|%d-%d|`, 3, d.other(a)+3)
	}, ""},
	{"products", func(d *draw) (string, string) {
		a, b := d.n(2, 20), d.n(2, 20)
		return f("%d", a*b), f(d.of(`%d \cdot %d`, `%d\times%d`), a, d.other(b))
	}, ""},
	{"1e3", func(d *draw) (string, string) {
		a, e := d.n(1, 9), d.n(2, 5)
		return f("%d%s", a, strings.Repeat("0", e)), f("%de%d", d.other(a), e)
	}, "math-verify reads 1e3 as 1 times Euler's number times 3"},
	{"thousands with spaces", func(d *draw) (string, string) {
		n := d.n(1000, 9_999_999)
		return f("%d", n), thousands(d.other(n), d.of(`\,`, " "))
	}, `math-verify reads 1\,000 as 1 times 0`},
	{"prose and box", func(d *draw) (string, string) {
		n := d.n(1, 500)
		return f("%d", n), f(d.of(`!So 2x=%[2]d, and the answer is $\boxed{%[1]d}$.`,
			`!First \boxed{7} is tried, which fails since it is too small by far. Then $x = %[2]d/2$, hence \boxed{%[1]d}. Done.`,
			`!We get \[\boxed{%[1]d}\]`), d.other(n), 2*n)
	}, ""},
	{"answer is", func(d *draw) (string, string) {
		n := d.n(1, 500)
		return f("%d", n), f(d.of("!There are 3. The answer is %d.", "!The final answer is $%d$.",
			"!Answer: %d",
			"!We have 12 of them.\n\n**Answer:** %d"), d.other(n))
	}, ""},
	{"last formula", func(d *draw) (string, string) {
		a, b := d.n(1, 50), d.n(2, 9)
		return f(`\frac{%d}{%d}`, a, b), f(d.of(`!With $x=2$ this gives $\frac{%d}{%d}$.`,
			`!Therefore \(y = \frac{%d}{%d}\).`,
			`!Hence $$\frac{%d}{%d}$$`), d.other(a), b)
	}, ""},
	{"last number", func(d *draw) (string, string) {
		n := d.n(1, 5000)
		return f("%d", n), f(d.of("!She has 3 and then %d", "!4 + 5 makes %d.", "!It costs $%d"), d.other(n))
	}, ""},
}
