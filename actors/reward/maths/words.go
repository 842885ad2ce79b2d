package maths

import "strings"

// plain writes signs of Unicode as LaTeX or ASCII has them.
var plain = strings.NewReplacer("−", "-", "–", "-", "—", "-", "‐", "-", "‑", "-", "×", "*", "·", "*", "⋅", "*", "∙",
	"*", "∗", "*", "÷", "/", "⁄", "/", "∕", "/", "√", `\sqrt `, "π", `\pi `, "∞", `\infty `, "≤", `\le `, "≥", `\ge `,
	"≠", `\ne `, "±", `\pm `, "∪", `\cup `, "∈", `\in `, "∅", `\emptyset `, "°", `^\circ `, "½", `\frac{1}{2}`, "⅓",
	`\frac{1}{3}`, "⅔", `\frac{2}{3}`, "¼", `\frac{1}{4}`, "¾", `\frac{3}{4}`, "²", "^2", "³", "^3", "\u00a0", " ",
	"\u2009", `\,`, "\u202f", `\,`, "，", ",", "（", "(", "）", ")", "％", "%", "＝", "=", "：", ":", "＋", "+", "€", "",
	"£", "", "¥", "", "₹", "", "“", "", "”", "", "’", "'", "‘", "'", "θ", `\theta `, "α", `\alpha `, "β", `\beta `,
	"λ", `\lambda `, "ℝ", `\mathbb{R}`)

// layout are commands that say how something looks; those of space give a space.
var layout = names("left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle " +
	"scriptstyle limits nolimits quad qquad thinspace enspace hfill rm bf it sf tt cal normalsize large")

// fonts are commands of one argument that say in which letters it is written.
var fonts = names("text textbf textit textrm textnormal textsf texttt mbox hbox mathrm mathbf mathit mathsf mathtt " +
	"mathbb mathcal operatorname emph bm boldsymbol boxed fbox underline ensuremath")

// renamed are commands that mean another, or a sign.
var renamed = map[string]string{"dfrac": `\frac`, "tfrac": `\frac`, "cfrac": `\frac`, "dbinom": `\binom`,
	"tbinom": `\binom`, "geq": `\ge`, "geqslant": `\ge`, "leq": `\le`, "leqslant": `\le`, "neq": `\ne`, "gt": ">",
	"lt": "<", "times": "*", "cdot": "*", "ast": "*", "star": "*", "div": "/", "colon": ":", "lbrack": "[",
	"rbrack": "]", "lbrace": `\{`, "rbrace": `\}`, "vert": "|", "lvert": "|", "rvert": "|", "mid": "|",
	"%": "%", "infinity": `\infty`, "inf": `\infty`, "oo": `\infty`, "degree": `\circ`, "varnothing": `\emptyset`,
	"bigcup": `\cup`, "lg": `\log`, "thickapprox": `\approx`, "arcsinh": `\asinh`, "lparen": "(", "rparen": ")",
	"asin": `\arcsin`, "acos": `\arccos`, "atan": `\arctan`, "imath": "i", "varphi": `\phi`, "varepsilon": `\epsilon`,
	"and": ",", "or": ",", "percent": "%", "percentage": "%", "pct": "%", "union": `\cup`}

// greek are commands that are symbols.
var greek = names("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon " +
	"phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar")

// spoken are names that are read as commands where they are written without a backslash.
var spoken = names("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh asin acos atan log ln lg exp sqrt " +
	"pi infinity inf oo and or percent percentage pct alpha beta gamma theta lambda union")

// units are short words that stand behind numbers; longer ones are words anyhow.
var units = names("cm mm km dm nm ft in yd mi kg mg lb lbs oz hr hrs min mins sec secs ms am pm mph kmh kph rpm " +
	"sq cu ml cl dl gal m g s h l t J N W V A K C F Hz kJ kW kN kHz MHz rad deg day days per men cents yr yrs rs " +
	"Rs USD EUR")

// names are the words of a list.
func names(list string) map[string]bool {
	out := map[string]bool{}
	for n := range strings.FieldsSeq(list) {
		out[n] = true
	}
	return out
}
