package sim

import "github.com/lfactor/lfactor/actors"

// ahead is how many actors are brought into the cache at once.
const ahead = 32

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
			sum += s.nodes[r].rank.Touch(kinds[i])
		}
	}
	for i := range batch {
		if r := ranks[i]; r >= 0 {
			n := &s.nodes[r]
			behind, starts := n.rank.TouchBehind(kinds[i])
			if sum += behind; kinds[i] == actors.Done {
				sum += n.dev.touchResults()
			}
			if starts {
				sum += n.dev.touch()
			}
		}
	}
	s.touched = sum
}
