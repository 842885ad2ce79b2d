package serve

import (
	"slices"
	"strings"
)

// thinking is how models of a kind set what they think apart from what they say.
// In the words of the field: reasoning parser.
type thinking struct {
	names  []string // as vLLM's --reasoning-parser has them
	told   []string // parts of the chat template that all together tell models of the kind
	begins part     // of an answer whose prompt does not end within another
	moves  []move
	marks  []string // tokens that are special and are written all the same
	always bool     // answers cannot be read without
}

// part is what of an answer a text is.
type part int

const (
	hidden  part = iota // a header, or what lies behind the answer
	thought             // reasoning
	spoken              // content
	fresh               // content, before any thought
)

// move is a mark in a part of an answer, behind which another part begins, with what it begins with.
type move struct {
	in   part
	mark string
	to   part
	keep string
}

// within has thoughts between two marks. A call of a tool ends them too.
func within(open, shut string) []move {
	return []move{{fresh, open, thought, ""}, {thought, shut, spoken, ""}, {thought, "<tool_call>", spoken, "<tool_call>"},
		{thought, kimiMarks[0], spoken, kimiMarks[0]}}
}

var (
	harmonyMarks = []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"}
	harmonyCall  = "to=functions."
)

// thinkings are those that are known, the most certain first.
var thinkings = []thinking{
	{names: []string{"openai_gptoss"}, told: []string{"<|channel|>", "<|message|>"}, always: true, marks: harmonyMarks, moves: []move{
		{hidden, "<|channel|>analysis<|message|>", thought, ""}, {hidden, "<|channel|>final<|message|>", spoken, ""},
		{hidden, "<|channel|>commentary<|message|>", spoken, ""}, {hidden, harmonyCall, spoken, harmonyCall},
		{thought, "<|end|>", hidden, ""}, {spoken, "<|end|>", hidden, ""}, {spoken, "<|call|>", hidden, ""}}},
	{names: []string{"mistral"}, told: []string{"[THINK]"}, begins: fresh, moves: within("[THINK]", "[/THINK]"),
		marks: []string{"[THINK]", "[/THINK]"}},
	{names: []string{"seed_oss"}, told: []string{"<seed:think>"}, begins: fresh, moves: within("<seed:think>", "</seed:think>"),
		marks: []string{"<seed:think>", "</seed:think>"}},
	{names: []string{"gemma4"}, told: []string{"<|channel>"}, begins: fresh, moves: within("<|channel>thought\n", "<channel|>"),
		marks: []string{"<|channel>", "<channel|>"}},
	{names: []string{"granite"}, told: []string{"Here is my thought process:"}, begins: fresh,
		moves: within("Here is my thought process:", "Here is my response:")},
	{names: []string{"hunyuan_a13b"}, told: []string{"</think>", "<answer>"}, begins: fresh, moves: append(within("<think>\n",
		"\n</think>\n<answer>\n"), move{fresh, "<answer>\n", spoken, ""}, move{spoken, "\n</answer>", hidden, ""})},
	{names: []string{"ernie45"}, told: []string{"</think>", "<response>"}, begins: thought, moves: append(within("<think>", "</think>"),
		move{thought, "</think>\n\n<response>\n", spoken, ""}, move{spoken, "\n</response>", hidden, ""})},
	{names: []string{"qwen3", "glm45", "glm47", "kimi_k2", "deepseek_v3", "hy_v3", "olmo3"}, told: []string{"<think>", "</think>"},
		begins: fresh, moves: within("<think>", "</think>"), marks: []string{"<think>", "</think>"}},
	{names: []string{"deepseek_r1", "minimax_m2", "step3"}, told: []string{"</think>"}, begins: thought,
		moves: append(within("<think>", "</think>"), move{thought, "<think>", thought, ""}), marks: []string{"<think>", "</think>"}},
}

// Thinkings are the names of what Options.Reasoning may be beside "", for none, and "auto".
func Thinkings() (out []string) {
	for _, t := range thinkings {
		out = append(out, t.names...)
	}
	slices.Sort(out)
	return out
}

// thinkingOf is how the model of a chat template thinks, by a name or as the template tells; nil where its thoughts stay in
// its texts.
func thinkingOf(name, template string) *thinking {
	for i := range thinkings {
		t := &thinkings[i]
		told := !slices.ContainsFunc(t.told, func(part string) bool { return !strings.Contains(template, part) })
		if told && (name == "auto" || t.always) || slices.Contains(t.names, name) {
			return t
		}
	}
	return nil
}

// at is the part in which an answer to a prompt begins: a prompt may end with a mark.
func (t *thinking) at(prompt string) part {
	prompt = strings.TrimRight(prompt, " \n")
	for _, m := range t.moves {
		if strings.HasSuffix(prompt, strings.TrimRight(m.mark, " \n")) && m.keep == "" {
			return m.to
		}
	}
	return t.begins
}

// parting parts an answer, which comes bit by bit.
type parting struct {
	of     *thinking
	in     part
	held   string // may be the beginning of a mark
	unsaid string // of hidden parts, while there was nothing else
	some   bool   // there was something else
}

// push adds text and returns what is certainly thought and what is certainly said. With last the text is the end.
func (p *parting) push(text string, last bool) (thoughts, said string) {
	out := [fresh + 1]string{}
	for p.held += text; ; {
		at, next := len(p.held), move{}
		for _, m := range p.of.moves {
			if i := strings.Index(p.held, m.mark); m.in == p.in && i >= 0 && (i < at || i == at && len(m.mark) > len(next.mark)) {
				at, next = i, m
			}
		}
		if hold := p.holds(at); hold >= 0 && !last {
			out[p.in], p.held = out[p.in]+p.held[:hold], p.held[hold:]
			break
		}
		out[p.in] += p.held[:at]
		if p.held = p.held[at+len(next.mark):]; next.mark == "" {
			break
		}
		p.in = next.to
		out[p.in] += next.keep
	}
	thoughts, said = out[thought], out[fresh]+out[spoken]
	p.some = p.some || thoughts+said != ""
	if p.unsaid += out[hidden]; last && !p.some { // the answer has another form: better all of it than nothing
		said = p.unsaid
	}
	return thoughts, said
}

// holds is where, up to a place, a mark may begin that is not whole yet; -1 if none does.
func (p *parting) holds(to int) int {
	for i := 0; i <= to && i < len(p.held); i++ {
		for _, m := range p.of.moves {
			if m.in == p.in && len(p.held)-i < len(m.mark) && strings.HasPrefix(m.mark, p.held[i:]) {
				return i
			}
		}
	}
	return -1
}
