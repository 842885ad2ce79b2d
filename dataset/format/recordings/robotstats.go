package recordings

import (
	"math"
	"slices"
)

// StatsOf are the statistics of columns of numbers, each by itself, with quantiles between the numbers
// around them, as NumPy's are. The columns are sorted.
func StatsOf(columns [][]float64) RobotStats { return statsOfColumns(columns) }

// statsOfColumns are the statistics of columns of numbers, each by itself; quantiles lie between the numbers
// around them, as NumPy's do. The columns are sorted.
func statsOfColumns(columns [][]float64) (s RobotStats) {
	for _, v := range columns {
		if len(v) == 0 {
			v = []float64{0}
		}
		slices.Sort(v)
		sum, squares := 0.0, 0.0
		for _, x := range v {
			sum += x
		}
		mean := sum / float64(len(v))
		for _, x := range v {
			squares += (x - mean) * (x - mean)
		}
		quantile := func(q float64) float64 {
			at := q * float64(len(v)-1)
			low := int(at)
			return v[low] + (v[min(low+1, len(v)-1)]-v[low])*(at-float64(low))
		}
		s.Min, s.Max = append(s.Min, v[0]), append(s.Max, v[len(v)-1])
		s.Mean, s.Std = append(s.Mean, mean), append(s.Std, math.Sqrt(squares/float64(len(v))))
		s.Q01, s.Q99 = append(s.Q01, quantile(0.01)), append(s.Q99, quantile(0.99))
	}
	return s
}
