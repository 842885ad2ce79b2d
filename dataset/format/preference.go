package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Pairs of answers: {"prompt", "chosen", "rejected"} as texts or as lists of messages;
// with the prompt in both answers, as HH-RLHF and UltraFeedback have it; or OpenAI's {"input":
// {"messages"}, "preferred_output", "non_preferred_output"}.
// In the words of the field: preference data.
var _ = dataset.Register(recordKind{name: "preference", file: "pairs.jsonl", kind: dataset.KindPairs,
	doc: "pairs of answers as {prompt, chosen, rejected}, of which one is preferred",
	check: func(d *dataset.Document) error {
		_, err := ParsePair(d)
		return err
	}}.format())

// Pair is a prompt with two answers: texts, or messages where Chat is true.
type Pair struct {
	Chat                   bool
	Text, Chosen, Rejected string
	Prompt, Better, Worse  []dataset.Message
	Margin                 float32
	Tools, Vars            json.RawMessage
}

// preferenceRoles are the roles of messages that templates write.
var preferenceRoles = []string{"system", "developer", "user", "assistant", "tool"}

// ParsePair reads a record of the format preference.
func ParsePair(d *dataset.Document) (*Pair, error) {
	raw, ok := d.Part("json")
	if !ok {
		return nil, errors.New("it has no record of two answers")
	}
	m, err := object(raw, d.Place)
	if err != nil {
		return nil, err
	}
	if m["preferred_output"] != nil {
		m["chosen"], m["rejected"] = m["preferred_output"], m["non_preferred_output"]
		in, err := object(m["input"], d.Place)
		if err != nil {
			return nil, fmt.Errorf("its \"input\" is no object with messages: %w", err)
		}
		m["prompt"], m["tools"] = in["messages"], in["tools"]
	}
	m = withTurns(m)
	p := &Pair{}
	if raw := m["margin"]; raw != nil && !isNull(raw) {
		if err := json.Unmarshal(raw, &p.Margin); err != nil {
			return nil, errors.New("its \"margin\" is no number")
		}
	}
	for _, key := range []string{"chosen", "rejected"} {
		if m[key] == nil || isNull(m[key]) {
			return nil, fmt.Errorf("it has no %q", key)
		}
	}
	if startsText(m["chosen"]) {
		return p, p.texts(m, d.Place)
	}
	p.Chat = true
	c := chatRecord{m, d.Place}
	if p.Tools, p.Vars, err = c.offers("tools"); err != nil {
		return nil, err
	}
	return p, p.chats(c)
}

// humanTurn and answerTurn are how texts of HH-RLHF write who speaks.
const humanTurn, answerTurn = "\n\nHuman:", "\n\nAssistant:"

func (p *Pair) texts(m map[string]json.RawMessage, at dataset.Place) (err error) {
	if p.Chosen, err = member(m, "chosen", at); err != nil {
		return err
	}
	if p.Rejected, err = member(m, "rejected", at); err != nil {
		return err
	}
	if m["prompt"] != nil && !isNull(m["prompt"]) {
		p.Text, err = member(m, "prompt", at)
	} else {
		i, j := strings.LastIndex(p.Chosen, answerTurn), strings.LastIndex(p.Rejected, answerTurn)
		if i < 0 || j < 0 || p.Chosen[:i] != p.Rejected[:j] || !strings.HasPrefix(p.Chosen, humanTurn) {
			return errors.New("it has no \"prompt\", and its answers are no conversations of " +
				"Human and Assistant that differ in the last turn")
		}
		i += len(answerTurn)
		p.Text, p.Chosen, p.Rejected = p.Chosen[:i], p.Chosen[i:], p.Rejected[i:]
	}
	switch {
	case err != nil:
		return err
	case p.Chosen == p.Rejected:
		return errors.New("its two answers are equal")
	case p.Chosen == "" || p.Rejected == "":
		return errors.New("one of its answers is empty")
	case p.Text == "":
		return errors.New("its prompt is empty")
	}
	return nil
}

// startsText tells whether a value is a text.
func startsText(raw json.RawMessage) bool {
	return strings.HasPrefix(strings.TrimSpace(string(raw)), "\"")
}

// preferenceTurns reads messages whose roles templates know.
func preferenceTurns(c chatRecord, key string) ([]dataset.Message, error) {
	list, err := c.turns(key, "role", "content", dataset.Tags{})
	for i, m := range list {
		if err == nil && !slices.Contains(preferenceRoles, m.Role) {
			err = fmt.Errorf("%s[%d] has the role %q; templates know %s", key, i, Clip(m.Role),
				strings.Join(preferenceRoles, ", "))
		}
	}
	return list, err
}

func (p *Pair) chats(c chatRecord) (err error) {
	turns := func(key string) ([]dataset.Message, error) { return preferenceTurns(c, key) }
	if p.Better, err = turns("chosen"); err != nil {
		return err
	}
	if p.Worse, err = turns("rejected"); err != nil {
		return err
	}
	switch raw := c.members["prompt"]; {
	case raw != nil && !isNull(raw) && strings.HasPrefix(strings.TrimSpace(string(raw)), "["):
		if p.Prompt, err = turns("prompt"); err != nil {
			return err
		}
		// UltraFeedback repeats the prompt's text beside answers that hold it
	default:
		n := 0
		for n < min(len(p.Better), len(p.Worse)) && same(p.Better[n], p.Worse[n]) {
			n++
		}
		p.Prompt, p.Better, p.Worse = p.Better[:n:n], p.Better[n:], p.Worse[n:]
	}
	return p.checkChats()
}

// same tells whether two turns say the same, in whatever order tables have keys.
func same(a, b dataset.Message) bool {
	var x, y any
	_, _ = json.Unmarshal(a.Raw, &x), json.Unmarshal(b.Raw, &y) // which are objects, or none
	return a.Role == b.Role && a.Content == b.Content && reflect.DeepEqual(x, y)
}

// speaks tells whether the assistant says something.
func speaks(l []dataset.Message) bool {
	return slices.ContainsFunc(l, func(m dataset.Message) bool { return m.Role == "assistant" })
}

func (p *Pair) checkChats() error {
	switch {
	case slices.EqualFunc(p.Better, p.Worse, same):
		return errors.New("its two answers are equal")
	case len(p.Prompt) == 0:
		return errors.New("it has no prompt, and its answers begin with different turns")
	case !speaks(p.Better) || !speaks(p.Worse):
		return errors.New("one of its answers has no turn of the assistant")
	}
	return nil
}
