package cost

import (
	"slices"
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
	for in, want := range map[string]float64{"2 B": 2, "2 MB": 2e6, "2 GB": 2e9, "2 MiB": 2 << 20,
		"2 GiB": 2 << 30,
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

// TestPieces: each part of a step, by hand, under constants that keep the others out of it.
func TestPieces(t *testing.T) {
	r := row()
	const tok, h, tp, layers = 1024, 1024, 4, 6
	k := Constants{peakShare: 0.5, prologue: 64, streamShare: 0.25, hostLayer: 1e-9, hostStage: 3e-3,
		insideByte: 1e-9, call: 1e-5, callAcross: 4e-5, acrossByte: 3e-9, dpByte: 5e-9, messageByte: 7e-9,
		message: 6e-4}
	p := k.Pieces(&r)
	// of tiles for a device's 108
	wave := 108.0 * 128 * 256 * 2 / (peak * 0.5)
	require.InEpsilon(t, wave/2/0.92*(h+64), k.product(1, tok, 1536, h), 1e-12,
		"96 middle tiles are one wave")
	require.InEpsilon(t, wave*(h+64), k.product(1, tok, 3072, h), 1e-12, "96 large ones")
	products := 3*k.product(2*16/tp, 512, 512, h/16) + 5*k.product(2*16/tp, 512, h/16, 512)
	for _, x := range [][2]int{{h, 768}, {256, h}, {h, 1024}, {1024, h}} {
		products += 2*k.product(1, tok, x[1], x[0]) + k.product(1, tok, x[0], x[1]) + k.product(1, x[0],
			x[1], tok)
	}
	stream := memoryRate * 0.25
	memory := (tok*h*40 + tok*4*h/tp*16 + 2*16/tp*512*512*32) / stream
	require.InEpsilon(t, layers*products, p.Products, 1e-12)
	require.InEpsilon(t, layers*memory, p.Memory, 1e-12)
	require.InEpsilon(t, layers*6*(2*3./4*2*tok*h*1e-9+2e-5), p.TP, 1e-12, "six rings, two doublings")
	require.InDelta(t, 0, p.Host, 1e-12, "a fast host is not waited for")
	require.InEpsilon(t, 3*k.product(1, tok, vocabulary/tp, h)+tok*vocabulary/tp*50/stream+3e-3, p.Logits,
		1e-12)
	require.InEpsilon(t, 2*tok*h*2*7e-9+6e-4, p.Message, 1e-12, "of a host's 8 ranks 2 send whole messages")
	const params = (12.0*h*h*layers + vocabulary*h) / tp
	require.InEpsilon(t, 2*3./4*4*params*4*5e-9+2e-5+4e-5, p.DP, 1e-12, "four rings share the adapters")
	require.InEpsilon(t, params*32/stream, p.Step, 1e-12)
	require.InEpsilon(t, p.Products+p.Memory+p.TP+p.Host, p.Stage(), 1e-12)

	slow := k
	device := p.Products + p.Memory + p.TP
	slow[hostLayer] = device / layers
	require.InEpsilon(t, (0.4+0.75)*device, onlyPieces(&slow, r).Stage(), 1e-9,
		"host and device alike long: the host decides the forward, the device the rest")
	slow[hostLayer] = 100 * device / layers
	require.InEpsilon(t, 100*device, onlyPieces(&slow, r).Stage(), 1e-6, "the host decides")
	parts := r
	parts.Heads, parts.Micro, parts.Batch, slow[hostSoftmax] = 8, 1, r.Batch/2, 1e9
	require.InEpsilon(t, layers*1e9, onlyPieces(&slow, parts).Stage(), 1e-3, "two heads are no multiple of 4")
	alone := r
	alone.PP, alone.GPUs = 1, 16
	a, logits := onlyPieces(&k, alone), p.Logits-3e-3
	require.InEpsilon(t, logits, a.Logits, 1e-6, "one stage hides the host's work behind the device's")
	require.Zero(t, a.Message)
}

func onlyPieces(k *Constants, r Measured) *Pieces {
	p := k.Pieces(&r)
	return &p
}

// TestPiecesNear: what lies on one host does not use its adapters, and groups of one exchange nothing.
func TestPiecesNear(t *testing.T) {
	k := Constants{peakShare: 0.5, streamShare: 0.25, insideByte: 1e-9, acrossByte: 3e-9, dpByte: 5e-9,
		messageByte: 7e-9, message: 0.5}
	r := row()
	r.TP, r.DP, r.PP, r.GPUs = 8, 1, 1, 8
	near := k.Pieces(&r)
	require.InEpsilon(t, 24*6*2*7./8*2*1024*1024*1e-9, near.TP, 1e-12)
	require.Zero(t, near.DP+near.Message)
	r.TP, r.GPUs = 16, 16
	require.InEpsilon(t, 24*6*2*15./16*2*1024*1024*3e-9, onlyPieces(&k, r).TP, 1e-12, "over two hosts")
	r.TP, r.DP, r.GPUs = 1, 8, 8
	params := 12*1024.0*1024*24 + vocabulary*1024
	near = k.Pieces(&r)
	require.Zero(t, near.TP)
	require.InEpsilon(t, 2*7./8*4*params*1e-9, near.DP, 1e-12, "eight ranks are on one host")
	r.DP, r.GPUs = 16, 16
	require.InEpsilon(t, 2*15./16*4*params*5e-9, onlyPieces(&k, r).DP, 1e-12,
		"one ring has the adapters alone")
	slowInside := k
	slowInside[insideByte] = 7e-9
	require.InEpsilon(t, 2*15./16*4*params*7e-9, onlyPieces(&slowInside, r).DP, 1e-12,
		"the slower link decides")
	r.DP, r.PP, r.GPUs = 2, 4, 8
	require.InEpsilon(t, 2*1024*1024*1e-9+0.5, onlyPieces(&k, r).Message, 1e-12)
	r.DP, r.PP, r.GPUs = 6, 4, 24
	require.InEpsilon(t, 2*1024*1024*6*7e-9+0.5, onlyPieces(&k, r).Message, 1e-12,
		"six replicas send beside each other")
	r.DP, r.GPUs = 16, 64
	require.InEpsilon(t, 2*1024*1024*8*7e-9+0.5, onlyPieces(&k, r).Message, 1e-12, "eight on a host")
	r.DP, r.PP, r.GPUs = 1, 16, 16
	require.InEpsilon(t, 2*1024*1024*4*7e-9+0.5, onlyPieces(&k, r).Message, 1e-12,
		"one rank has one of a host's four adapters")
}

// begin are the constants that no row has changed.
func begin() (k Constants) {
	for i, c := range ConstantTable {
		k[i] = c.Start
	}
	return
}

// TestPredictByHand: what the parts make of a step.
func TestPredictByHand(t *testing.T) {
	r := row()
	k := begin()
	p := k.Pieces(&r)
	got := k.Predict(&r, 9)
	require.Equal(t, 6, r.Microbatches())
	require.Equal(t, Terms{Products: 6 * p.Products, Memory: 6 * p.Memory, TP: 6 * p.TP, Host: 6 * p.Host,
		Logits: 6 * p.Logits, Bubble: 3 * p.Stage(), PP: 18 * p.Message, DP: p.DP, Step: p.Step}, got)
	require.InEpsilon(t, got.Products+got.Memory+got.TP+got.Host+got.Logits+got.Bubble+got.PP+got.DP+got.Step,
		got.Sum(), 1e-12)
}

// TestRegrets: a question needs two plans; the plan that is predicted to be fastest is measured.
func TestRegrets(t *testing.T) {
	var rows []Measured
	for i, s := range []float64{3, 2, 2.5, 7, 4, 5} {
		r := row()
		r.Seconds = s
		switch i {
		case 3:
			r.Hidden = 2048 // a plan alone
		case 4, 5:
			r.GPUs, r.DP = 32, 2
		}
		rows = append(rows, r)
	}
	require.Equal(t, []float64{0.25, 0}, Regrets(rows, []float64{9, 8, 7, 1, 2, 3}))
	require.Equal(t, []float64{2, 3}, []float64{Errors(rows[:2], []float64{9, 8})[0], Errors(rows[:2],
		[]float64{9, 8})[1]})
	require.Equal(t, []float64{0.5}, Errors(rows[:1], []float64{1.5}), "without their signs")
}

// TestCalibrateBounds: constants stay physical whatever the rows say, and what no row tells stays as it was.
func TestCalibrateBounds(t *testing.T) {
	r := row()
	r.TP, r.DP, r.PP, r.GPUs, r.Seconds = 1, 1, 1, 1, 500
	k, err := Calibrate(slices.Repeat([]Measured{r}, 100), equalStages)
	require.NoError(t, err)
	for i, c := range ConstantTable {
		require.GreaterOrEqual(t, k[i], c.Least, c.Name)
		require.LessOrEqual(t, k[i], c.Most, c.Name)
		switch i {
		case insideByte, call, callAcross, acrossByte, dpByte, messageByte, message:
			require.Equal(t, c.Start, k[i], c.Name)
		case hostLayer: // which alone makes any step long
			require.InEpsilon(t, c.Most, k[i], 1e-9, c.Name)
		}
	}
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
	truth := begin()
	truth[peakShare] *= 0.8
	truth[hostLayer] *= 0.7
	truth[dpByte] *= 1.5
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
	held, err := CrossValidate(rows, nil, Splits(5)[0], slots)
	require.NoError(t, err)
	mean, _, worst := Quantiles(Errors(held.Rows, held.Seconds))
	t.Logf("held out: mean %.4f, worst %.4f", mean, worst)
	require.Less(t, mean, 0.01)
	_, err = Calibrate(nil, slots)
	require.ErrorContains(t, err, "no rows")
	rows[3].Seconds = 0
	_, err = Calibrate(rows, slots)
	require.ErrorContains(t, err, "row 3 has no measured time")
}
