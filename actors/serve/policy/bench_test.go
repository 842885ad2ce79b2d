package policy

import (
	"testing"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
)

// BenchmarkDecide is the time of a batch of three observations of the tiny policy.
func BenchmarkDecide(b *testing.B) {
	m := trains(b)
	a, err := policies.NewActor(m)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	var asks []policies.Ask
	for range 3 {
		q, err := a.Ask(policies.Seen{Task: "red disc", State: []float64{1, 2}, Views: []*media.Image{media.NewImage(8, 8)}})
		if err != nil {
			b.Fatal(err)
		}
		asks = append(asks, q)
	}
	for b.Loop() {
		if _, err := a.Decide(asks); err != nil {
			b.Fatal(err)
		}
	}
}
