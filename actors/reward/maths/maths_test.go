package maths

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSame: forms that answers and golds come in, and what is not the same though its digits are.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		gold, answer string
		same         bool
	}{
		{"1/2", `\boxed{\frac{1}{2}}`, true},
		{"1", `\boxed{\frac{1}{2}}`, false}, // its first number
		{"2", `\boxed{\sqrt{2}}`, false},    // its last number
		{`\sqrt{2}`, `so \boxed{\sqrt 2}`, true},
		{"-3", "−3", true},
		{"1000", `1{,}000`, true},
		{"1024", `2^{10}`, true},
		{"1000", "1e3", true},
		{"1_0", "10", false},
		{"3/2", `1\frac{1}{2}`, true},
		{"3/2", "1 1/2", true},
		{"(1,2)", `\left( 1, 2 \right)`, true},
		{"(1,2)", "(2,1)", false},
		{`\{1,2\}`, "2, 1", true},
		{"5", `5\text{ cm}`, true},
		{"5", `5~\mathrm{cm}^2`, true},
		{"50%", `50\%`, true},
		{"50%", "1/2", true},
		{"72", "#### 72\n", true},
		{"She has 5+7=12.\n#### 12", "The answer is 12.", true},
		{"We get $x=3$, so \\boxed{3}.", `\boxed{3}`, true},
		{"12", "There are 12. I am sure.", true},
		{"12", "12 or 13", false},
		{"Monday", `\boxed{\text{Monday}}`, true},
		{"Monday", "The answer is Monday.", true},
		{"Monday", "Tuesday", false},
		{"B", "(B)", true},
		{`\frac{\pi}{4}`, `\boxed{0.25\pi}`, true},
		{`x \in [1,2]`, `[1,2]`, true},
		{`(-\infty,-1)`, `(-\infty,-3)`, false},
		{`\boxed{1}, \boxed{2}`, `\boxed{2} and \boxed{1}`, true},
		{"3", `\boxed{5} is too much: \boxed{3}`, true},
		{"5", `\boxed{5} is too much: \boxed{3}`, false},
		{"12", `\boxed{12`, false}, // cut off: it may have been 123
		{"0", "1/0", false},
		{"1/3", "0.333333", true},
		{"1/3", "0.33", false},
		{`\sin 30^\circ`, "0.5", true},
		{`x^2-1`, "(x-1)(x+1)", true},
		{"y=2x", "2x", true},
		{`\frac{3}{4}`, `x = \dfrac34`, true},
	} {
		gold, err := Read(c.gold)
		require.NoError(t, err, c.gold)
		require.Equal(t, c.same, gold.Is(c.answer), "%s against %s", c.answer, c.gold)
	}
}

// TestRead: golds with which nothing can be compared.
func TestRead(t *testing.T) {
	for gold, why := range map[string]string{
		"":                   "empty",
		" \n":                "empty",
		`\boxed{}`:           "empty",
		`\boxed{\frac{1}{2}`: "braces",
		`\widget{3} + `:      "not known",
		strings.Repeat("All of the above holds, as was to be shown. ", 9): "short text",
	} {
		_, err := Read(gold)
		require.ErrorContains(t, err, why, gold)
	}
}

// TestBounded: no text panics or takes long, and every gold that is read is the same as itself.
func TestBounded(t *testing.T) {
	pieces := strings.Fields(
		`\frac \sqrt \boxed { } ( ) [ ] , ; 1 2 34 0.5 x y e i \pi \infty ^ _ ! % = < \le \pm \cup + - * / | \{ \} ` +
			`\text{a} \text{cm} \begin{pmatrix} \end{pmatrix} & \\ \sin \log \binom \left \right #### answer: $ \circ 10^{10} 9! \lfloor \rfloor`)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range rng.IntN(14) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
			if rng.IntN(3) == 0 {
				b.WriteByte(' ')
			}
		}
		if gold, err := Read(b.String()); err == nil {
			require.True(t, gold.Is(b.String()), b.String())
		}
	}
	for _, deep := range []string{"{", "(", `\frac{`, `\sqrt{`, "[1,", "|", "-", `\text{1`, `\boxed{1}`,
		"9^", "9!", "1,", `\pm1,`} {
		text := strings.Repeat(deep, 5000)
		if gold, err := Read(text); err == nil {
			gold.Is(text + "1")
		}
	}
}
