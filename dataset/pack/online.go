package pack

import (
	"cmp"
	"slices"
)

var (
	_ = register(Algorithm{"largest-fit",
		"each row takes the longest sample left that fits, again and again", largestFit})
	_ = register(Algorithm{"sequential",
		"in order, each into the first open row with room; the oldest of too many open rows is closed", sequential})
	_ = register(Algorithm{"max-images", "most images first, a row at a time", maxImages})
	_ = register(Algorithm{"none", "each sample a row", func(items []Item, l Limits) (rows [][]int, left []int) {
		fit, left := split(items, l)
		for _, i := range fit {
			rows = append(rows, []int{i})
		}
		return rows, left
	}})
)

// largestFit is LoongForge's "balanced" packing.
func largestFit(items []Item, l Limits) (rows [][]int, left []int) {
	order, left := split(items, l)
	b := &buckets{items: items, limits: l, ids: map[int][]int{}, lengths: newLengthSet(l.Tokens)}
	slices.Reverse(order) // take takes the last of a length first
	for _, i := range order {
		b.put(i)
	}
	for b.count > 0 {
		rows = append(rows, b.grow(b.lengths.atMost(l.Tokens), 1, 0))
	}
	return rows, left
}

// sequential keeps up to Limits.Open rows open.
func sequential(items []Item, l Limits) (rows [][]int, left []int) {
	order, left := split(items, l)
	type open struct{ row, room, images int }
	var list []open
	for _, i := range order {
		it := items[i]
		k := slices.IndexFunc(list, func(o open) bool {
			return o.room >= it.Tokens && (l.Images == 0 || o.images+it.Images <= l.Images)
		})
		if k < 0 {
			if len(list) == max(1, l.Open) {
				list = list[1:]
			}
			list = append(list, open{len(rows), l.Tokens, 0})
			rows, k = append(rows, nil), len(list)-1
		}
		o := &list[k]
		rows[o.row] = append(rows[o.row], i)
		o.room, o.images = o.room-it.Tokens, o.images+it.Images
	}
	return rows, left
}

// maxImages is LoongForge's "sequential_max_images": one row is filled in the order of images, and closed
// when the next sample does not fit.
func maxImages(items []Item, l Limits) (rows [][]int, left []int) {
	order, left := split(items, l)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(items[b].Images, items[a].Images) })
	room, images := 0, 0
	for _, i := range order {
		it := items[i]
		if len(rows) == 0 || it.Tokens > room || l.Images > 0 && images+it.Images > l.Images {
			rows, room, images = append(rows, nil), l.Tokens, 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], i)
		room, images = room-it.Tokens, images+it.Images
	}
	return rows, left
}
