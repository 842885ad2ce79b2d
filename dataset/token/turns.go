package token

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// turnMark stands in place of what a turn says, to see where a template writes it: a character of the private
// use area, which texts and templates do not have.
const turnMark = "\uE000"

// rendered is a conversation as a template writes it, and which text of it is the assistant's.
type rendered struct {
	text    string
	spans   [][2]int
	stopped bool // a turn that is learnt ends in a token that can stop an answer, or none is learnt
}

// turns renders a conversation and finds the assistant's turns that are to be learnt. A template with
// {% generation %} says itself which text that is; for any other, turn tells.
func (r *rendering) turns(t *Tokenizer, whole jinja.Output, o ChatOptions) (*rendered, error) {
	w := &rendered{text: whole.Text, spans: whole.Generations, stopped: true}
	if o.TrainOnPrompt {
		w.spans = [][2]int{{0, len(w.text)}}
		return w, r.mute(w, true)
	}
	if whole.HasBlocks {
		err := r.mute(w, false)
		if o.LastTurnOnly && err == nil {
			err = r.lastOnly(w)
		}
		w.stopped = t.stopsAll(r.t, w.text, w.spans)
		return w, err
	}
	w.spans = nil
	if err := r.written(w, t, o.LastTurnOnly); err != nil {
		return nil, err
	}
	w.stopped = t.stopsAll(r.t, w.text, w.spans)
	return w, nil
}

// written adds the spans of a template without {% generation %}; those of the last turn alone if last, which are
// none where it is not to be learnt.
func (r *rendering) written(w *rendered, t *Tokenizer, last bool) error {
	marks, floor := t.stopMarks(r.t, w.text), 0
	for i := range r.list {
		if r.role(i) != "assistant" {
			continue
		}
		from, to, err := r.turn(i, w.text, floor, marks)
		if err != nil {
			return err
		}
		if !endsInStop(w.text[from:to], to, marks) {
			if to, err = r.stop(w, i, to, marks, t); err != nil {
				return err
			}
		}
		if floor = to; last {
			w.spans = nil
		}
		if !r.muted[i] {
			w.spans = append(w.spans, [2]int{from, to})
		}
	}
	return nil
}

// turn returns the byte range that message i, the assistant's, wrote. It begins behind the prompt with
// which a model is asked for it, and ends where the text up to it ends. Where these are no prefixes of the
// whole text, because the template writes a turn in another way once others follow, the turn is what moves
// when its content is altered, from the end of the header on and with the tail that follows in both.
func (r *rendering) turn(i int, whole string, floor int, marks []stopMark) (from, to int, err error) {
	from, to = -1, -1
	before, beforeErr := r.render(r.list[:i], true)
	if beforeErr == nil && strings.HasPrefix(whole, before.Text) {
		from = len(before.Text)
	}
	upTo, err := r.render(r.list[:i+1], false)
	if err == nil && strings.HasPrefix(whole, upTo.Text) {
		to = len(upTo.Text)
	}
	if from >= floor && to >= from {
		return from, to, nil
	}
	p, q, err := r.moved(r.list, i, whole)
	if err != nil {
		return 0, 0, err
	}
	if floor, err = r.alone(i, p, q, whole, floor); err != nil {
		return 0, 0, err
	}
	if from < floor || from > p {
		if from = p; beforeErr == nil {
			from = r.header(i, before.Text, whole[:p], floor)
		}
	}
	if to < q {
		to = r.tail(i, upTo.Text, whole, q, marks)
	}
	return from, to, nil
}

// alone refuses a turn whose content, which lies in [p, q), changes the text of its neighbours, and returns
// where the message before it ends.
func (r *rendering) alone(i, p, q int, whole string, floor int) (int, error) {
	for _, j := range []int{i - 1, i + 1} {
		if j < 0 || j >= len(r.list) {
			continue
		}
		from, to, err := r.moved(r.list, j, whole)
		if err == nil && from < q && p < to {
			return 0, r.unstable(i, fmt.Sprintf("its content changes the text of message %d", j))
		}
		if err == nil && j < i && to <= p {
			floor = max(floor, to)
		}
	}
	if p < floor {
		return 0, r.unstable(i, "its content changes text in front of it")
	}
	return floor, nil
}

// moved is the byte range of text, which messages render to, that changes with what message i says.
func (r *rendering) moved(messages []any, i int, text string) (from, to int, err error) {
	other, err := r.altered(messages, i)
	if err != nil {
		return 0, 0, err
	}
	if other == text {
		return 0, 0, r.unstable(i, "the template does not write it")
	}
	from = commonPrefix(text, other)
	to = len(text) - min(commonSuffix(text, other), len(text)-from)
	for to < len(text) && text[to]&0xC0 == 0x80 { // a character's last bytes may be those of the mark
		to++
	}
	for from > 0 && from < len(text) && text[from]&0xC0 == 0x80 {
		from--
	}
	return from, to, nil
}

// altered is messages as text with something else said in message i.
func (r *rendering) altered(messages []any, i int) (string, error) {
	var first error
	for _, calls := range []bool{true, false} {
		list := append(messages[:i:i], alter(messages[i], calls))
		out, err := r.render(append(list, messages[i+1:]...), r.asks)
		if err == nil {
			return out.Text, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", r.unstable(i, fmt.Sprintf("with other content it is an error (%v)", first))
}

// header returns where the header that asks for message i ends in text, which ends where its content begins.
// The header is what a generation prompt adds to the messages before; templates add to it what a model does
// not write again in a history (<think>), so the longest beginning of it counts.
func (r *rendering) header(i int, prompt, text string, floor int) int {
	plain, err := r.render(r.list[:i], false)
	if err != nil {
		return len(text)
	}
	add := prompt[commonPrefix(prompt, plain.Text):]
	for n := len(add); n > len(add)/3 && n > 0; n-- {
		if at := strings.LastIndex(text[floor:], add[:n]); at >= 0 {
			return floor + at + n
		}
	}
	return len(text)
}

// tail returns where message i ends in the whole text, whose content ends at q: what follows the content is
// the same where the conversation ends with the message, up to the last token that can stop an answer.
func (r *rendering) tail(i int, upTo, whole string, q int, marks []stopMark) int {
	_, end, err := r.moved(r.list[:i+1], i, upTo)
	if err != nil {
		return q // the template wants messages behind it
	}
	same := commonPrefix(whole[q:], upTo[end:])
	if same == len(upTo)-end {
		return q + same
	}
	to := q
	for _, m := range marks {
		if m.from >= q && m.to <= q+same {
			to = m.to
		}
	}
	if rest := whole[to : q+same]; to > q {
		to += len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
	}
	return to
}

// stop returns where a turn ends whose end at to has no token that stops an answer: behind the token that
// follows, which may begin the next message. Behind the last turn that is what a further message would begin
// with, and the text grows by it.
func (r *rendering) stop(w *rendered, i, to int, marks []stopMark, t *Tokenizer) (int, error) {
	if i+1 < len(r.list) {
		return nextStop(w.text, to, marks), nil
	}
	more := append(r.list[:len(r.list):len(r.list)], follower(r.list[i]))
	longer, err := r.render(more, false)
	if err != nil {
		return to, nil // the template has nothing to say behind an answer
	}
	_, q, err := r.moved(more, i, longer.Text)
	if err != nil {
		return to, nil
	}
	_, end, err := r.moved(r.list, i, w.text)
	if err != nil {
		return to, nil
	}
	rest, ok := strings.CutPrefix(longer.Text[q:], w.text[end:])
	at := len(longer.Text) - len(rest)
	if next := nextStop(longer.Text, at, t.stopMarks(r.t, longer.Text)); ok && next > at {
		w.text += longer.Text[at:next]
		return len(w.text), nil
	}
	return to, nil
}

// follower is a message that may follow an answer: a tool's, where the answer calls one, else the user's.
func follower(answer any) any {
	out := jinja.NewMap()
	out.Set("role", "user")
	if m, ok := answer.(*jinja.Map); ok {
		if _, calls := m.Get("tool_calls"); calls {
			out.Set("role", "tool")
		}
	}
	out.Set("content", turnMark)
	return out
}

// mute takes the turns that are not to be learnt out of the spans: all that overlap them, or their text alone
// where all else is learnt.
func (r *rendering) mute(w *rendered, cut bool) error {
	for i, m := range r.muted {
		if !m {
			continue
		}
		from, to, err := r.moved(r.list, i, w.text)
		if err != nil {
			return err
		}
		var out [][2]int
		for _, s := range w.spans {
			if s[0] > to || s[1] < from {
				out = append(out, s)
			} else if cut {
				out = append(out, [2]int{s[0], max(s[0], from)}, [2]int{min(s[1], to), s[1]})
			}
		}
		w.spans = out
	}
	return nil
}

// lastOnly keeps the spans of the last turn of the assistant, which may be several.
func (r *rendering) lastOnly(w *rendered) error {
	for i := len(r.list) - 1; i >= 0; i-- {
		if r.role(i) != "assistant" {
			continue
		}
		from, _, err := r.moved(r.list, i, w.text)
		for err == nil && len(w.spans) > 0 && w.spans[0][1] <= from {
			w.spans = w.spans[1:]
		}
		return err
	}
	return nil
}

// unstable is the error for templates whose text of a message cannot be told from the rest.
func (r *rendering) unstable(i int, why string) error {
	return fmt.Errorf("chat template: cannot tell which text message %d (%s) wrote: %s; "+
		"mark it in the template with {%% generation %%} … {%% endgeneration %%}", i, r.role(i), why)
}

// errVanished begins the error for a message that a template leaves out.
var errVanished = errors.New("the chat template does not write all that is said")

// complete refuses a conversation of which the template leaves something out: a model would be trained, or
// asked, without it.
func (r *rendering) complete(text string) error {
	for i, v := range r.list {
		m, ok := v.(*jinja.Map)
		if !ok {
			continue
		}
		if part := asPython(text, m, r.callTexts[i]); part != "" {
			return fmt.Errorf("%w: it writes the %s of message %d as Python prints a list or object",
				errVanished, part, i)
		}
		least := 2 // calls, of which one is lost beside others
		if !contains(text, m) {
			least = 1
			other, err := r.altered(r.list, i)
			if _, calls := m.Get("tool_calls"); !calls && err == nil && other == text {
				return fmt.Errorf("%w: message %d (%s) leaves no trace; use a template that knows this role and form",
					errVanished, i, r.role(i))
			}
		}
		if name := r.lostCalls(text, i, least); name != "" {
			return fmt.Errorf("%w: the call of %q in message %d is missing; use a template that writes calls, or give "+
				"each a message of its own", errVanished, name, i)
		}
	}
	return nil
}

// lostCalls is the name of a function whose name changes nothing of the text where message i calls it, "" for none
// and where it has fewer calls than least.
func (r *rendering) lostCalls(text string, i, least int) (name string) {
	calls, ok := get[*jinja.List](r.list[i].(*jinja.Map), "tool_calls")
	for k := 0; ok && len(calls.Elems()) >= least && k < len(calls.Elems()); k++ {
		list, m, at, called := slices.Clone(r.list), withoutKeys(r.list[i].(*jinja.Map)), 0, ""
		eachCall(m, func(f *jinja.Map) {
			if at++; at == k+1 {
				called, _ = get[string](f, "name")
				f.Set("name", turnMark)
			}
		})
		list[i] = m
		if out, err := r.render(list, r.asks); err == nil && out.Text == text {
			name = called
		}
	}
	return name
}

// commonPrefix is the number of bytes in which the beginnings of a and b agree.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// commonSuffix is the number of bytes in which the ends of a and b agree.
func commonSuffix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
