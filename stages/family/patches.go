package family

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Grid is one image or video of a microbatch: its patches, and the tokens whose places its features take.
type Grid struct {
	T, H, W int        // patches in time, height and width; tiles of one size have T tiles
	Spans   [][2]int32 // half-open ranges of the microbatch's rows, together as many as there are features
	// seconds from one row of the grid in time to the next, of a video; 0 where unknown or for an image
	Every float64
	Video bool
}

// Patches is the number of patches.
func (g Grid) Patches() int { return g.T * g.H * g.W }

// Images are the images and videos of a microbatch in order of their tokens.
type Images struct {
	Grids  []Grid
	Values []float32 // [patches, Tower.PatchDim], normalised
}

// Patches is the number of patches of all images.
func (p Images) Patches() (n int) {
	for _, g := range p.Grids {
		n += g.Patches()
	}
	return
}

// Frames is the number of images, tiles and rows in time of videos: what attention of a tower may not cross.
func (p Images) Frames() (n int) {
	for _, g := range p.Grids {
		n += g.T
	}
	return
}

// Unit is what the number of patches of a microbatch is a multiple of: those of a feature, or of a tile.
func (v *Vision) Unit() int {
	if v.Tile > 0 {
		n := v.Tile / v.Patch
		return n * n
	}
	return v.Tower.Join
}

// Class numbers the shapes that microbatches are padded to, so that few traces serve all: 0 is a microbatch
// without images. Eight classes an octave waste at most an eighth. Towers with a token a frame have
// classes for the number of frames too.
func (v *Vision) Class(patches, frames int) int32 {
	if patches == 0 {
		return 0
	}
	c := step(ceil(patches, v.Unit()))<<8 + 1
	if v.Tower.Class && v.Tile == 0 {
		c += step(frames)
	}
	return int32(c)
}

// Shape is the shape of a class, for microbatches of rows tokens.
func (v *Vision) Shape(rows int, class int32) block.Shape {
	s := block.Shape{Rows: rows}
	if class == 0 || v == nil {
		return s
	}
	n := size(int(class)>>8) * v.Unit()
	s.Dims = map[string]int{block.Patches: n}
	switch {
	case v.Tower.Class && v.Tile == 0:
		s.Dims[block.Frames] = size(int(class)&255 - 1)
	case v.Tower.Class:
		s.Dims[block.Frames] = n / v.Unit()
	}
	return s
}

func ceil(a, b int) int { return (a + b - 1) / b }

// size is the i-th of 1, 2, … 16, 18, 20, … 32, 36, …: eight sizes an octave from sixteen on; step is the
// first that holds n.
func size(i int) int {
	if i < 16 {
		return i + 1
	}
	octave, part := (i-16)/8, (i-16)%8
	return (16 + 2*(part+1)) << octave
}

// step is the number of the smallest planned size that takes n patches. Few sizes mean few traces.
func step(n int) int {
	i := 0
	for size(i) < n {
		i++
	}
	return i
}

// Check reports images that do not fit their tokens or the tower.
func (v *Vision) Check(p *Images) error {
	if n := p.Patches(); len(p.Values) != n*v.Tower.PatchDim {
		return fmt.Errorf("%d values for %d patches of %d", len(p.Values), n, v.Tower.PatchDim)
	}
	for i, g := range p.Grids {
		if g.T < 1 || g.H < 1 || g.W < 1 || g.H%v.Merge != 0 || g.W%v.Merge != 0 {
			return fmt.Errorf("image %d has a grid of %d×%d×%d patches, want multiples of %d", i+1, g.T,
				g.H, g.W, v.Merge)
		}
		tokens := 0
		for _, s := range g.Spans {
			tokens += int(s[1] - s[0])
		}
		if n := v.Tower.Times; n > 0 && g.T > n {
			return fmt.Errorf("image %d has %d frames in a clip, want at most %d", i+1, g.T, n)
		}
		if v.Tower.Paired && g.Video && g.T > 1 && g.T%2 != 0 {
			return fmt.Errorf("image %d is a video of %d frames, want an even number: two make a feature", i+1, g.T)
		}
		if f := v.Features(g); f != tokens {
			return fmt.Errorf("image %d has %d features and %d tokens", i+1, f, tokens)
		}
	}
	return nil
}

// Features is how many features an image or a video has.
func (v *Vision) Features(g Grid) int {
	switch {
	case v.Tower.Times > 0: // means over its frames
		return g.H * g.W / v.Tower.Join
	case v.Tower.Paired && g.Video:
		return ceil(g.T, 2) * g.H * g.W / v.Tower.Join
	}
	return g.Patches() / v.Tower.Join
}

// Data makes the tensors that the tower and the decoder read of a microbatch's images, padded to shape s;
// they must have passed Check. Padding belongs to no sequence and to no token.
func (v *Vision) Data(p *Images, s block.Shape) map[string]*tensor.Tensor {
	d := &visionData{v: v, s: s, out: map[string]*tensor.Tensor{}}
	places := tensor.Make(tensor.I32, s.Rows)
	for i := range places.I32() {
		places.I32()[i] = -1
	}
	f := int32(0)
	for _, g := range p.Grids {
		for _, span := range g.Spans {
			for at := span[0]; at < span[1]; at++ {
				places.I32()[at] = f
				f++
			}
		}
	}
	if s.Dim(block.Patches) == 0 {
		return d.out
	}
	d.out[placesOf(0)] = places
	pixels := tensor.Make(tensor.F32, s.Dim(block.Patches), v.Tower.PatchDim)
	copy(pixels.F32(), p.Values)
	d.out["vis.pixels"] = pixels
	d.fill(p)
	return d.out
}

// visionData gathers the tensors that describe the images of one microbatch to the encoder.
type visionData struct {
	v   *Vision
	s   block.Shape
	out map[string]*tensor.Tensor
}

// ints adds a tensor of 32-bit integers; what v does not fill stays 0.
func (d *visionData) ints(name string, v []int32, shape ...int) {
	t := tensor.Make(tensor.I32, shape...)
	copy(t.I32(), v)
	d.out[name] = t
}

// fill makes everything that follows from the grids.
func (d *visionData) fill(p *Images) {
	v, t := d.v, &d.v.Tower
	n := d.s.Dim(block.Patches)
	order, restore := identity(n), identity(n/t.Join)
	if t.Ordered {
		cu := d.windows(p, order, restore)
		d.ints("vis.cu_window", cu, len(cu))
		d.ints("vis.order", order, n)
		d.ints("vis.restore", restore, n/t.Join)
	}
	cu, pos := []int32{0}, make([]int32, 0, 2*n)
	for _, g := range p.Grids {
		for range g.T {
			cu = append(cu, cu[len(cu)-1]+int32(g.H*g.W))
			pos = append(pos, v.squares(g.H, g.W)...)
		}
		if t.Times > 0 { // frames of a clip see each other
			cu = append(cu[:len(cu)-g.T], cu[len(cu)-1])
		}
	}
	for len(pos) < 2*n {
		pos = append(pos, 0)
	}
	switch {
	case t.Class:
		d.classed(p, pos)
	default:
		d.ints("vis.cu", cu, len(cu))
		turned := make([]int32, 2*n)
		for i, from := range order {
			copy(turned[2*i:2*i+2], pos[2*from:2*from+2])
		}
		d.ints("vis.pos", turned, n, 2)
		if t.Taps > 1 {
			d.blend(p)
		}
		if t.Taps == 1 {
			d.table(p, n)
		}
		if t.Times > 0 {
			d.clips(p, n)
		}
		if t.Paired {
			d.pairs(p, n/t.Join)
		}
	}
}

// identity is the permutation of n that moves nothing.
func identity(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// squares are row and column of the patches of an image, square after square as they join.
func (v *Vision) squares(h, w int) (out []int32) {
	m := v.Merge
	if v.Tile > 0 {
		m = 1
	}
	for y := 0; y < h; y += m {
		for x := 0; x < w; x += m {
			for i := range m {
				for k := range m {
					out = append(out, int32(y+i), int32(x+k))
				}
			}
		}
	}
	return
}

// windows puts the features of each image in the order of windows (transformers, get_vision_window_index)
// and returns the borders of windows; order is by patch, restore by feature.
func (d *visionData) windows(p *Images, order, restore []int32) []int32 {
	v, join := d.v, int32(d.v.Tower.Join)
	cu, base, at := []int32{0}, int32(0), int32(0)
	for _, g := range p.Grids {
		h, w := g.H/v.Merge, g.W/v.Merge
		for t := range g.T {
			for y := 0; y < h; y += v.Window {
				for x := 0; x < w; x += v.Window {
					for i := y; i < min(y+v.Window, h); i++ {
						for k := x; k < min(x+v.Window, w); k++ {
							f := base + int32((t*h+i)*w+k)
							restore[f] = at
							for q := range join {
								order[at*join+q] = f*join + q
							}
							at++
						}
					}
					cu = append(cu, at*join)
				}
			}
		}
		base += int32(g.T * h * w)
	}
	return cu
}

// table numbers the patches of images of one size in the position table; padding takes its first row.
func (d *visionData) table(p *Images, n int) {
	ids, at := make([]int32, n), 0
	for _, g := range p.Grids {
		for range g.T {
			for i := range g.H * g.W {
				ids[at] = int32(i)
				at++
			}
		}
	}
	d.ints("vis.tap.0", ids, n)
	if d.v.Tower.Shuffled {
		d.shuffle(n, func(i int) int { return i })
	}
}

// classed lays sequences out that begin with a class token: row 0 of the joined rows is the token, patch i is row i+1.
func (d *visionData) classed(p *Images, pos []int32) {
	n, rows := d.s.Dim(block.Patches), d.s.Dim(block.Patches)+d.s.Dim(block.Frames)
	from, ids, mark := make([]int32, rows), make([]int32, rows), make([]int32, rows)
	where, turned := make([]int32, n), make([]int32, 2*rows)
	for i := range from {
		from[i] = -1
	}
	cu, at, patch := []int32{0}, 0, 0
	for _, g := range p.Grids {
		for range g.T {
			from[at], mark[at] = 0, 1
			at++
			for i := range g.H * g.W {
				from[at], ids[at], where[patch] = int32(patch+1), int32(i+1), int32(at)
				copy(turned[2*at:2*at+2], pos[2*patch:2*patch+2])
				at++
				patch++
			}
			cu = append(cu, int32(at))
		}
	}
	for ; patch < n; patch++ {
		where[patch] = -1
	}
	d.ints("vis.rows", from, rows)
	d.ints("vis.cu", cu, len(cu))
	if d.v.Tower.Taps == 1 {
		d.ints("vis.tap.0", ids, rows)
	}
	if d.v.Tower.Theta > 0 {
		d.ints("vis.pos", turned, rows, 2)
	}
	if d.v.Tower.Turned {
		d.ints("vis.class", mark, rows)
	}
	d.shuffle(n, func(i int) int { return int(where[i]) })
}

// shuffle puts the patches of tiles in the order in which they join (pixel shuffle, as transformers'
// InternVL lays channels out): a feature takes the squares of patches by columns.
func (d *visionData) shuffle(n int, row func(patch int) int) {
	out := make([]int32, 0, n)
	if d.v.Tile == 0 {
		for i := range n {
			out = append(out, int32(row(i)))
		}
		d.ints("vis.patches", out, n)
		return
	}
	side, m := d.v.Tile/d.v.Patch, d.v.Merge
	for tile := range n / (side * side) {
		for y := 0; y < side; y += m {
			for x := 0; x < side; x += m {
				for i := range m {
					for k := range m {
						out = append(out, int32(row(tile*side*side+(y+i)*side+x+k)))
					}
				}
			}
		}
	}
	d.ints("vis.patches", out, n)
}

// Positions are the rows' positions in time, height and width [rows 3] (arXiv:2409.12191 §2.1, as
// transformers counts them): text goes on by one in all three; an image's features by their place in its
// grid; what follows begins after its longer side. Segments cut by cu begin at 0.
func (v *Vision) Positions(rows int, cu []int32, p *Images) []int32 {
	out := make([]int32, 3*rows)
	type run struct {
		grid Grid
		t    int // rows of the grid in time
	}
	starts := map[int32]run{}
	for _, g := range p.Grids {
		t := v.Features(g) / (g.H / v.Merge * g.W / v.Merge) // frames may be one in pairs, or all of a clip
		if len(g.Spans) == t {                               // a span a frame
			t = 1
		}
		for _, s := range g.Spans {
			starts[s[0]] = run{g, t}
		}
	}
	for s := 0; s+1 < len(cu); s++ {
		next := int32(0)
		for i := cu[s]; i < cu[s+1]; {
			r, image := starts[i]
			if !image {
				out[3*i], out[3*i+1], out[3*i+2] = next, next, next
				next++
				i++
				continue
			}
			h, w := int32(r.grid.H/v.Merge), int32(r.grid.W/v.Merge)
			for t := range r.t {
				far := int32(t)
				if r.grid.Video && v.PerSecond > 0 {
					every := r.grid.Every
					if every == 0 {
						every = 1
					}
					far = int32(float32(t) * float32(v.PerSecond*every))
				}
				for y := range h {
					for x := range w {
						out[3*i], out[3*i+1], out[3*i+2] = next+far, next+y, next+x
						i++
					}
				}
			}
			next += max(h, w)
		}
	}
	return out
}

// Cut cuts tiles [n channels height width] into rows of patches, as the patches' projection takes them:
// patch after patch along the rows of a tile, each channel after channel.
func (v *Vision) Cut(tiles []float32, n int) []float32 {
	side, c, p := v.Tile/v.Patch, v.Channels, v.Patch
	out := make([]float32, 0, len(tiles))
	for t := range n {
		for y := range side {
			for x := range side {
				for ch := range c {
					for i := range p {
						at := ((t*c+ch)*v.Tile+y*p+i)*v.Tile + x*p
						out = append(out, tiles[at:at+p]...)
					}
				}
			}
		}
	}
	return out
}
