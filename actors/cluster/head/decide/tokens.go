package decide

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
)

// Ticket is what the store keeps of a join token, under the hash of its secret.
type Ticket struct {
	Until time.Time `json:"until"`
	Made  time.Time `json:"made"`
}

// Good says why a token is good no more.
func (t Ticket) Good(now time.Time) error {
	if now.After(t.Until) {
		return fmt.Errorf("the token was good for %v and ended at %s: make another", TokenLife,
			t.Until.Format(time.RFC3339))
	}
	return nil
}

// TokenLife is how long a token may wait for its host.
const TokenLife = 10 * time.Minute

// keepTokens bounds how many tokens wait for their hosts at a time; ended ones make room.
const keepTokens = 10000

var goodName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// NewToken makes a token known by the hash of its secret.
type NewToken struct {
	Ask   int64
	Key   string
	Until time.Time
}

func (in NewToken) ask() int64 { return in.Ask }

// apply keeps a token for a host to join. Tokens are bounded in number, and those that have run out are dropped first.
func (in NewToken) apply(h *Head) {
	if len(h.tokens) >= keepTokens {
		for _, k := range slices.Sorted(maps.Keys(h.tokens)) {
			if h.tokens[k].Good(h.now) != nil {
				h.dropToken(k)
			}
		}
	}
	if len(h.tokens) >= keepTokens {
		h.say(Answer{Ask: in.Ask, Err: &Refusal{Bad, fmt.Sprintf(
			"%d tokens wait for their hosts already; each ends after %v", len(h.tokens), TokenLife)}})
		return
	}
	t := Ticket{Until: in.Until, Made: h.now}
	h.tokens[in.Key] = t
	h.put(keyTokens+in.Key, t)
	h.say(Answer{Ask: in.Ask})
}

// dropToken forgets a token here and in the store.
func (h *Head) dropToken(key string) {
	delete(h.tokens, key)
	h.write(keyTokens+key, nil)
}

// Join asks to let a host in that has a token. The token is spent with the first try that names it, whatever
// comes of it (H-5). Who has none leaves no trace in the store (H-7).
type Join struct {
	Ask    int64
	Key    string // hash of the token's secret
	Name   string
	Remote string // address
	Binary string
	Serial string // of the certificate that it gets
	Fault  string // what is wrong with the rest of the request, "" for nothing
}

func (in Join) ask() int64 { return in.Ask }

// ErrNoToken is the answer to whoever knows no token.
var ErrNoToken = &Refusal{Denied, "the token is unknown, or was used: `lfactor cluster token` on the " +
	"head's host makes another, for one host"}

// apply lets a host in that shows a token. The token is used up even if the host is then refused,
// so that it cannot serve for trying.
func (in Join) apply(h *Head) {
	t, ok := h.tokens[in.Key]
	if !ok {
		h.say(Answer{Ask: in.Ask, Err: ErrNoToken})
		return
	}
	h.dropToken(in.Key)
	if err := h.mayJoin(in, t); err != nil {
		h.event(Event{Kind: "refused", Host: in.Name, Text: fmt.Sprintf("%s may not join as %.64q: %v",
			in.Remote, in.Name, err)})
		h.say(Answer{Ask: in.Ask, Err: &Refusal{Denied, err.Error()}})
		return
	}
	h.say(Answer{Ask: in.Ask, Member: h.enter(in.Name, in.Serial).Member})
}

// headName is no host's.
const headName = "head"

// mayJoin tells why a host may not join, or nil if it may.
func (h *Head) mayJoin(in Join, t Ticket) error {
	if err := t.Good(h.now); err != nil {
		return err
	}
	switch old := h.agents[in.Name]; {
	case !goodName.MatchString(in.Name) || in.Name == headName:
		return fmt.Errorf("%.64q is not a name for a host: letters, digits, dots and dashes, and not %q",
			in.Name, headName)
	case in.Binary != h.o.Binary:
		return fmt.Errorf("host %s has another binary (%.12s; the head has %.12s): copy the head's to "+
			"it", in.Name, in.Binary, h.o.Binary)
	case in.Fault != "":
		return fmt.Errorf("%s", in.Fault)
	case old != nil && old.conn != 0:
		return fmt.Errorf("the cluster has a host %s already, and it is connected: give this one "+
			"another name with --name", in.Name)
	}
	return nil
}
