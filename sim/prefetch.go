package sim

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// ahead is how many actors are brought into the cache at once.
const ahead = 32

// line is how many bytes a cache brings in at once.
const line = 64

// prefetch reads what the next events of the batch will need, one kind of thing after the other, so that the
// misses of a large simulation overlap instead of following each other.
func (s *Sim) prefetch(batch []item) {
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
			sum += linesBy[kinds[i]].touch(&s.nodes[r].rank)
		}
	}
	for i := range batch {
		r := ranks[i]
		if r < 0 || kinds[i] == actors.Credit {
			continue
		}
		n := s.nodes[r]
		if kinds[i] == actors.Done {
			sum += n.dev.touchResults()
			if int(s.flight(batch[i].msg).segment) < len(n.dev.segs)-1 {
				continue // it ends no action
			}
			sum += beginsAction.touch(&n.rank)
		}
		sum += int64(n.dev.l.Credits) + n.dev.touch()
	}
	s.touched = sum
}

// lines are places in a rank's memory, in bytes from its beginning, of which each lies in another line.
type lines []uintptr

// touch reads a word at each place. The sum means nothing.
func (l lines) touch(r *core.Rank) (sum int64) {
	for _, at := range l {
		sum += *(*int64)(unsafe.Add(unsafe.Pointer(r), at))
	}
	return sum
}

// What is needed of a rank by its fields, which lie in the order in which messages need them, and by the elements that
// its short lists begin with: of every message; of the beginning of a job; of the beginning and the end of an action.
var (
	ofAll    = []string{"step"}
	ofJob    = []string{"cur", "groups", "scalars", "inbox.boxes", "parts.groups.0", "parts.ins.0", "parts.boxes.0"}
	ofAction = []string{"row", "edges", "ports.wires.0", "ports.wires.1", "ports.ends.3", "ports.held.0",
		"ports.held.1", "ports.edges.1", "ports.edges.3"}

	beginsAction = linesOf(ofAction)
	linesBy      = func() (all [1 << 8]lines) {
		most := linesOf(ofAll, ofJob, ofAction)
		for k := range all {
			all[k] = most
		}
		all[actors.Credit] = linesOf(ofAll, []string{"edges", "ports.edges.0", "ports.edges.2"})
		all[actors.Done] = linesOf(ofAll, []string{"cur", "groups", "parts.groups.0", "spent"})
		all[actors.Part] = linesOf(ofAll, ofJob)
		return all
	}()
)

// linesOf are the lines that some fields of a rank begin in, each given by its path.
func linesOf(lists ...[]string) (out lines) {
	seen := map[uintptr]bool{}
	for _, path := range slices.Concat(lists...) {
		at := placeOf(path) &^ 7
		if !seen[at/line] {
			seen[at/line] = true
			out = append(out, at)
		}
	}
	return out
}

// placeOf is where a field of a rank begins, or an element of a field that is an array.
func placeOf(path string) (at uintptr) {
	t := reflect.TypeFor[core.Rank]()
	for name := range strings.SplitSeq(path, ".") {
		if i, err := strconv.Atoi(name); err == nil {
			t = t.Elem()
			at += uintptr(i) * t.Size()
			continue
		}
		f, ok := t.FieldByName(name)
		if !ok {
			panic("sim: a rank has no " + path)
		}
		t, at = f.Type, at+f.Offset
	}
	return at
}
