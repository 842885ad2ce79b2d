package growth

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets this program be the one that is measured: it holds as much as its word and number say.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Getenv("GROWTH_PLANTED") == "" {
		os.Exit(m.Run())
	}
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	size := n
	if os.Args[1] == "square" {
		size = n * n / 16
	}
	held := make([]byte, size<<20)
	for i := range held {
		held[i] = byte(i)
	}
	fmt.Println(held[len(held)/2])
}

// TestPlanted: memory that grows with the square is found in a real process, and memory that grows as its work does is not.
func TestPlanted(t *testing.T) {
	t.Setenv("GROWTH_PLANTED", "1")
	program, err := os.Executable()
	require.NoError(t, err)
	o := Options{Program: program, Dir: t.TempDir(), Runs: 1, Most: Fewest, Tell: func(string, int) {}}
	square := Measure(context.Background(), &Case{Verb: "square", Axis: "n", From: 8, Run: "square {n}"}, o)
	require.Empty(t, square.Failed)
	require.Contains(t, square.Over(), "memory")
	require.InDelta(t, 2, square.Memory.Exponent, 0.2)
	line := Measure(context.Background(), &Case{Verb: "line", Axis: "n", From: 8, Run: "line {n}"}, o)
	require.Empty(t, line.Failed)
	require.NotContains(t, line.Over(), "memory")
	broken := Measure(context.Background(), &Case{Verb: "line", Axis: "n", From: 16, Run: "line many"}, o)
	require.Contains(t, broken.Failed, "exit status 2")
}

// TestFit: exponents of curves that are known, with a constant beside them and measurements that are off.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		name  string
		cost  func(n float64) float64
		needs float64
		over  bool
	}{
		{"a line", func(n float64) float64 { return n }, 1, false},
		{"a line above much else", func(n float64) float64 { return 300 + n }, 1, false},
		{"nothing grows", func(float64) float64 { return 3 }, 1, false},
		{"sorting", func(n float64) float64 { return n * math.Log(n) }, 1.15, false},
		{"a root", func(n float64) float64 { return math.Sqrt(n) }, 1, false},
		{"a square", func(n float64) float64 { return n * n }, 1, true},
		{"a square above much else", func(n float64) float64 { return 3e5 + n*n }, 1, true},
		{"a line and a square that is half of the end", func(n float64) float64 { return 1600*n + n*n }, 1, true},
		{"the square that the work needs", func(n float64) float64 { return 5 + n*n }, 2, false},
		{"a cube", func(n float64) float64 { return n * n * n }, 2, true},
	} {
		for _, noise := range []float64{0, 0.03} {
			var points []Point
			for i, n := range []int{100, 200, 400, 800, 1600} {
				points = append(points, Point{N: n, CPU: c.cost(float64(n)) * (1 + noise*float64(1-2*(i&1)))})
			}
			f := fit(points, c.needs, 0, func(p Point) float64 { return p.CPU })
			require.Equal(t, c.over, f.Over(), "%s, measurements off by %g: %+v", c.name, noise, f)
		}
	}
}

// TestChosen: every case has a name of its own, and an unknown one is told.
func TestChosen(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Cases {
		require.False(t, names[c.Name()], c.Name())
		names[c.Name()] = true
		require.Equal(t, c.Time > 1 || c.Memory > 1, c.Why != "", "%s: an exponent over 1 wants its reason", c.Name())
	}
	some, err := Chosen([]string{"sim/layers"})
	require.NoError(t, err)
	require.Len(t, some, 1)
	_, err = Chosen([]string{"sim/planets"})
	require.ErrorContains(t, err, `no case is named "sim/planets"; there are check/layers`)
}
