package policy

import (
	"testing"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/trained"
)

// BenchmarkDecide is the time of a batch of three observations of the tiny policy.
func BenchmarkDecide(b *testing.B) {
	m := trains(b)
	a, err := m.NewActor()
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	var asks []trained.Ask
	for range 3 {
		q, err := a.Ask(trained.Seen{Task: "red disc", State: []float64{1, 2}, Views: []*media.Image{media.NewImage(8, 8)}})
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
