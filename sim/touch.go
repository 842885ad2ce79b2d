package sim

import (
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// ahead is how many actors are brought into the cache at once.
const ahead = 32

// line is how many bytes a cache brings in at once.
const line = 64

// touch reads what the next events of the batch will need, one kind of thing after the other, so that the
// misses of a large simulation overlap instead of following each other.
func (s *Sim) touch(batch []item) {
	var ranks [ahead]int32
	var kinds [ahead]actors.Kind
	sum := int64(0)
	for i := range batch {
		f := s.flight(batch[i].msg)
		ranks[i], kinds[i] = s.rankOf[f.to], f.kind
		sum += s.cells[f.to].free[0]
	}
	for i := range batch {
		if b := s.flight(batch[i].msg).blob; b != nil {
			sum += int64(b.refs)
		}
		if r := ranks[i]; r >= 0 {
			sum += touch(&s.nodes[r].rank, spansBy[kinds[i]])
		}
	}
	for i := range batch {
		r := ranks[i]
		if r < 0 || kinds[i] == actors.Credit {
			continue
		}
		n := &s.nodes[r]
		if kinds[i] == actors.Done {
			sum += n.dev.touchResults()
			if int(s.flight(batch[i].msg).segment) < len(n.dev.segs)-1 {
				continue // it ends no action
			}
			sum += touch(&n.rank, beginsAction)
		}
		sum += int64(n.dev.l.Credits) + n.dev.touch()
	}
	s.touched = sum
}

// span is a stretch of a rank's memory, in bytes from its beginning; it begins with a line.
type span struct{ from, to uintptr }

// touch reads a word of every line of some stretches. The sum means nothing.
func touch(r *core.Rank, all []span) (sum int64) {
	for _, x := range all {
		for at := x.from; at < x.to; at += line {
			sum += *(*int64)(unsafe.Add(unsafe.Pointer(r), at))
		}
	}
	return sum
}

// What is needed of a rank by its fields, which lie in the order in which messages need them: of every
// message; of the beginning of a job; of the beginning and the end of an action.
var (
	ofAll    = []string{"l", "running"}
	ofJob    = []string{"cur", "groups", "scalars", "inbox", "parts.groups", "parts.ins", "parts.boxes"}
	ofAction = []string{"row", "edges", "ports.wires", "ports.ends", "ports.held", "ports.edges"}

	beginsAction = spansOf(ofAction)
	spansBy      = func() (all [1 << 8][]span) {
		for k := range all {
			all[k] = spansOf(ofAll, ofJob, ofAction)
		}
		all[actors.Credit] = spansOf(ofAll, []string{"edges", "ports.edges"})
		all[actors.Done] = spansOf(ofAll, []string{"cur", "groups", "parts.groups", "spent"})
		all[actors.Part] = spansOf(ofAll, ofJob)
		return all
	}()
)

// spansOf are the stretches that some fields of a rank lie in, each given by its path.
func spansOf(lists ...[]string) (out []span) {
	needed := make([]bool, unsafe.Sizeof(core.Rank{})/line+1)
	for _, path := range slices.Concat(lists...) {
		t, at := reflect.TypeFor[core.Rank](), uintptr(0)
		for name := range strings.SplitSeq(path, ".") {
			f, ok := t.FieldByName(name)
			if !ok {
				panic("sim: a rank has no " + path)
			}
			t, at = f.Type, at+f.Offset
		}
		for i := at / line; i <= (at+t.Size()-1)/line; i++ {
			needed[i] = true
		}
	}
	for i, yes := range needed {
		from := uintptr(i) * line
		switch n := len(out) - 1; {
		case !yes:
		case n >= 0 && out[n].to == from:
			out[n].to += line
		default:
			out = append(out, span{from, from + line})
		}
	}
	for i := range out { // the last line is not whole
		out[i].to = min(out[i].to, unsafe.Sizeof(core.Rank{})-7)
	}
	return out
}
