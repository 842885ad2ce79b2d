package cost

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/collective"
)

// TestPrices: a machine's prices by hand.
func TestPrices(t *testing.T) {
	m := &Machine{Flops: 100, Efficiency: 0.5, Bandwidth: 40, Stream: 0.25, Overhead: 3, Devices: 4,
		Local: collective.Link{Latency: 1, PerByte: 0.5}, Remote: collective.Link{Latency: 2, PerByte: 4}}
	require.Equal(t, 20.0+10+6, m.Segment(1000, 100, 2), "arithmetic, then traffic, and two calls")
	require.Equal(t, []int{0, 0, 1, 2}, []int{m.Host(0), m.Host(3), m.Host(4), m.Host(11)})
	require.Zero(t, m.Link(2, 2))
	require.Equal(t, m.Local, m.Link(4, 7))
	require.Equal(t, m.Remote, m.Link(3, 4))
	require.Zero(t, m.Collective(collective.AllReduce, []int{3}, 1<<20))
	require.Zero(t, m.Collective(collective.AllReduce, nil, 1<<20))
	for _, k := range []collective.Kind{collective.AllReduce, collective.AllGather,
		collective.ReduceScatter} {
		require.Equal(t, collective.RingTime(k, 3, 3000, m.Local), m.Collective(k, []int{0, 1, 3}, 3000))
		require.Equal(t, collective.RingTime(k, 2, 3000, m.Remote), m.Collective(k, []int{3, 4}, 3000))
	}
	require.Equal(t, collective.TreeTime(4, 1, m.Local),
		m.Collective(collective.AllReduce, []int{0, 1, 2, 3}, 1),
		"two hops are shorter than six for a byte")
	require.Equal(t, collective.HierarchicalTime(8, 4, 8000, m.Local, m.Remote),
		m.Collective(collective.AllReduce, []int{0, 1, 2, 3, 4, 5, 6, 7}, 8000))
	uneven := []int{0, 1, 2, 4}
	require.Equal(t, collective.RingTime(collective.AllReduce, 4, 8000, m.Remote),
		m.Collective(collective.AllReduce, uneven, 8000),
		"hosts with different numbers of members have no hierarchy")
	for _, bytes := range []int64{1, 8000} {
		for _, devices := range [][]int{{0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, uneven} {
			sends := m.Sends(collective.AllReduce, devices, bytes)
			link := func(a, b int) collective.Link { return m.Link(devices[a], devices[b]) }
			for _, s := range sends { // by their place among the devices
				require.True(t, s.From >= 0 && s.To >= 0 && s.From < len(devices) && s.To < len(devices),
					"%v", s)
			}
			// a ring over equal links takes what the form says, one with a few faster links less
			form, played := m.Collective(collective.AllReduce, devices, bytes),
				collective.Play(len(devices), sends, link)
			if len(devices) == 4 && devices[3] == 4 || bytes == 1 {
				require.LessOrEqual(t, played, form*1.0001)
				continue
			}
			require.InEpsilon(t, form, played, 0.01)
		}
	}
}

// row is a measured run of several hosts.
func row() Measured {
	return Measured{GPUs: 64, Batch: 48, Micro: 2, Hidden: 1024, Heads: 16, Layers: 24, Seq: 512, TP: 4,
		DP: 4, PP: 4,
		Seconds: 1}
}

// TestUnits: a file's quantities in every unit, and pairs of hosts with a cable.
func TestUnits(t *testing.T) {
	text := func(flops, memory, bandwidth, latency, extra string) string {
		return "name: x\ndevice:\n  flops: " + flops + "\n  memory: " + memory + "\n  bandwidth: " + bandwidth +
			"\nhost:\n  devices: 2\n  bandwidth: 3 GB/s\n  latency: " + latency +
			"\nnetwork:\n  hosts: 3\n  bandwidth: 5 MB/s\n  latency: 7 ms\n" + extra
	}
	for in, want := range map[string]float64{"2 B": 2, "2 MB": 2e6, "2 GB": 2e9, "2 MiB": 2 << 20, "2 GiB": 2 << 30,
		"2 TiB": 2 << 40} {
		m, err := Read("c.yaml", []byte(text("1 TFLOP/s", in, "1 GB/s", "1 us", "")))
		require.NoError(t, err)
		require.Equal(t, want, m.Memory)
	}
	m, err := Read("c.yaml", []byte(text("3 PFLOP/s", "1 GB", "2 TB/s", "4 us", "  cables: 0-1, 1-2\n")))
	require.NoError(t, err)
	require.Equal(t, []float64{3e15, 2e12}, []float64{m.Flops, m.Bandwidth})
	require.Equal(t, [][2]int{{0, 1}, {1, 2}}, m.Joined)
	require.InEpsilon(t, 4e-6, m.Local.Latency, 1e-12)
	require.InEpsilon(t, 7e-3, m.Remote.Latency, 1e-12)
	require.InEpsilon(t, 1/3e9, m.Local.PerByte, 1e-12)
	require.InEpsilon(t, 1/5e6, m.Remote.PerByte, 1e-12)
	again, err := Read("again.yaml", m.Write())
	require.NoError(t, err)
	require.InEpsilon(t, m.Local.PerByte, again.Local.PerByte, 1e-5)
	require.InEpsilon(t, m.Remote.Latency, again.Remote.Latency, 1e-5)
}

// TestPieces: each constant has the part of a step that it is of, by hand.
func TestPieces(t *testing.T) {
	r := row()
	tok, h, tp := 1024.0, 1024.0, 4.0
	flops := 4 * (24*tok*h*h + 4*tok*512*h) / tp
	one := func(k int) (c Constants) {
		c[k] = 1e-9
		return c
	}
	piece := func(k int) Pieces {
		c := one(k)
		return c.Pieces(&r)
	}
	const layers = 6.0
	params := (12*h*h*layers + vocabulary*h) / tp
	logits := 6 * tok * h * vocabulary / tp
	for k, want := range map[int]Pieces{
		perFlop:   {Layers: layers * flops, Logits: logits},
		perByte:   {Layers: layers * tok * h * 8},
		perShard:  {Layers: layers * (tok*h*32/tp + 2*16/tp*512*512*4)},
		hostLayer: {Layers: layers},
		tpInside:  {TP: layers * 6 * 6 * 2 * tok * h / 4},
		tpLayer:   {TP: layers},
		ppByte:    {Message: 2 * tok * h},
		dpAcross:  {DP: 6 * 2 * params / 4},
		stepParam: {Step: params},
		tpAcross:  {}, dpInside: {}, halfWidth: {},
	} {
		got := piece(k)
		for i, v := range [][2]float64{{want.Layers, got.Layers}, {want.TP, got.TP},
			{want.Logits, got.Logits},
			{want.Message, got.Message}, {want.DP, got.DP}, {want.Step, got.Step}} {
			require.InDelta(t, v[0]*1e-9, v[1], 1e-6*v[0]*1e-9+1e-15, "%s, piece %d", ConstantNames[k], i)
		}
	}
	both := one(perFlop)
	both[halfWidth] = 512
	require.InEpsilon(t, layers*flops*1e-9*(1+512*tp/h), both.Pieces(&r).Layers, 1e-9,
		"narrow shards are slower")
	mixed := one(perByte)
	mixed[hostLayer] = tok * h * 8 * 1e-9
	require.InEpsilon(t, math.Pow(2, 0.25)*layers*tok*h*8*1e-9, mixed.Pieces(&r).Layers, 1e-9,
		"host and device alike long: a smooth corner")
	r.TP, r.DP = 16, 1
	require.Zero(t, piece(tpInside).TP, "over two hosts")
	require.Positive(t, piece(tpAcross).TP)
	require.Zero(t, piece(dpAcross).DP+piece(dpInside).DP)
	r.TP, r.DP = 1, 8
	require.Zero(t, piece(tpInside).TP+piece(tpLayer).TP)
	require.Positive(t, piece(dpInside).DP, "eight ranks are on one host")
	require.Zero(t, piece(dpAcross).DP)
	r.PP = 1
	require.Zero(t, piece(ppByte).Message)
}

// TestPredictByHand: what the parts make of a step.
func TestPredictByHand(t *testing.T) {
	r := row()
	k := start
	p := k.Pieces(&r)
	got := k.Predict(&r, 9)
	require.Equal(t, 6, r.Microbatches())
	require.InEpsilon(t, 6*(p.Layers+p.Logits), got.Compute, 1e-12)
	require.InEpsilon(t, 6*p.TP, got.TP, 1e-12)
	require.InEpsilon(t, 3*(p.Layers+p.TP), got.Bubble, 1e-12)
	require.InEpsilon(t, 18*p.Message, got.PP, 1e-12)
	require.Equal(t, p.DP, got.DP)
	require.Equal(t, p.Step, got.Step)
	require.InEpsilon(t, got.Compute+got.TP+got.Bubble+got.PP+got.DP+got.Step, got.Sum(), 1e-12)
}

// TestImpossibleRows: what cannot have been measured is named with its column.
func TestImpossibleRows(t *testing.T) {
	good := row()
	column, why := good.Check()
	require.Empty(t, column+why)
	for want, change := range map[string]func(r *Measured){
		"# GPUs":               func(r *Measured) { r.GPUs = 32 },
		"global batch":         func(r *Measured) { r.Batch = 50 },
		"pipeline parallelism": func(r *Measured) { r.Layers = 3 },
		"hidden size":          func(r *Measured) { r.Hidden = 0 },
		"sequence length":      func(r *Measured) { r.Seq = 1<<24 + 1 },
	} {
		r := row()
		change(&r)
		column, why = r.Check()
		require.Equal(t, want, column, why)
	}
	most := row()
	most.Seq, most.Layers = 1<<24, 4
	column, _ = most.Check()
	require.Empty(t, column, "the borders themselves are possible")
	r := row()
	r.GPUs = 32
	_, why = r.Check()
	require.Equal(t, "32, but tp 4 · dp 4 · pp 4 = 64", why)
}

// TestQuantiles and folds: folds depend on the row and not on its place; they are about equally large.
func TestQuantiles(t *testing.T) {
	mean, median, worst := Quantiles([]float64{3, 1, 5, 7})
	require.Equal(t, []float64{4, 5, 7}, []float64{mean, median, worst})
	mean, median, worst = Quantiles(nil)
	require.Zero(t, mean+median+worst)
	count := [5]int{}
	for i := range 1000 {
		r := row()
		r.Batch, r.Seq = 8*(1+i), 128*(1+i%7)
		count[r.Fold(5)]++
	}
	for _, n := range count {
		require.InDelta(t, 200, n, 60)
	}
	r := row()
	require.Equal(t, r.Fold(5), func() int { r := row(); return r.Fold(5) }())
}

// TestCalibrateFinds: constants that made the times are found again as far as the times tell them apart:
// every row is predicted within a hundredth, also those that were held out.
func TestCalibrateFinds(t *testing.T) {
	truth := start
	truth[perFlop] *= 1.4
	truth[hostLayer] *= 0.7
	truth[dpAcross] *= 1.5
	slots := func(pp, micro int) (float64, error) { return float64(micro + pp - 1), nil }
	var rows []Measured
	for i := range 60 {
		r := row()
		r.Hidden, r.Heads, r.TP = 512<<(i%4), 8<<(i%4), 1<<(i%3)
		r.PP = 1 << (i / 3 % 3)
		r.DP = 64 / r.TP / r.PP
		r.Micro = 1 + i%2
		r.Batch, r.Layers = r.DP*r.Micro*(2+i%5), 8*(1+i%3)
		n, _ := slots(r.PP, r.Microbatches())
		r.Seconds = truth.Predict(&r, n).Sum()
		rows = append(rows, r)
	}
	k, err := Calibrate(rows, slots)
	require.NoError(t, err)
	for i := range rows {
		n, _ := slots(rows[i].PP, rows[i].Microbatches())
		require.InEpsilon(t, rows[i].Seconds, k.Predict(&rows[i], n).Sum(), 0.01)
	}
	errs, err := CrossValidate(rows, 5, slots)
	require.NoError(t, err)
	mean, _, worst := Quantiles(errs)
	t.Logf("held out: mean %.4f, worst %.4f", mean, worst)
	require.Less(t, mean, 0.01)
	_, err = Calibrate(nil, slots)
	require.ErrorContains(t, err, "no rows")
	rows[3].Seconds = 0
	_, err = Calibrate(rows, slots)
	require.ErrorContains(t, err, "row 3 has no measured time")
}
