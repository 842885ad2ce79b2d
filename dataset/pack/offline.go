package pack

var (
	_ = register(Algorithm{"best-fit-decreasing", "longest first, each into the row that it fills best", bestFit})
	_ = register(Algorithm{"hashbucket",
		"rows of a set fill, built from buckets of equal lengths; what makes no such row is left", hashBucket})
)

// bestFit is best-fit decreasing in O(n·(log n + capacity/64 + images)): rows are found by their room, and
// among rows of one room the one that has had it longest is taken.
func bestFit(items []Item, l Limits) (rows [][]int, left []int) {
	order, left := split(items, l)
	byLength(items, order)
	b := &bestRows{limits: l, rooms: newLengthSet(l.Tokens), waiting: map[int]map[int]*rowQueue{}}
	for _, i := range order {
		row, room, images := b.take(items[i])
		if row < 0 {
			row, room, images = len(rows), l.Tokens, 0
			rows = append(rows, nil)
		}
		rows[row] = append(rows[row], i)
		if room -= items[i].Tokens; room > 0 {
			b.put(row, room, images+items[i].Images)
		}
	}
	return rows, left
}

// bestRows are the rows with room, by their room and by their images where these are bounded.
type bestRows struct {
	limits  Limits
	rooms   lengthSet
	waiting map[int]map[int]*rowQueue // by room, and images
	turn    int
}

// rowQueue is rows in the order in which they came to have a room.
type rowQueue struct {
	first int // of rows that is still there
	rows  []waitingRow
}

type waitingRow struct{ row, turn int }

// put enters a row that has room left, by the room and the images that it can still take.
func (b *bestRows) put(row, room, images int) {
	if b.limits.Images == 0 {
		images = 0
	}
	if b.waiting[room] == nil {
		b.waiting[room] = map[int]*rowQueue{}
	}
	q := b.waiting[room][images]
	if q == nil {
		q = &rowQueue{}
		b.waiting[room][images] = q
	}
	b.turn++
	q.rows = append(q.rows, waitingRow{row, b.turn})
	b.rooms.add(room)
}

// take removes the row in which an item leaves least room. It returns -1 if the item fits in no row.
func (b *bestRows) take(it Item) (row, room, images int) {
	for room = b.rooms.atLeast(it.Tokens); room >= 0; room = next(b.rooms, room) {
		of, first := -1, 0
		for n, q := range b.waiting[room] { // the smallest turn, whatever the order
			if w := q.rows[q.first]; (b.limits.Images == 0 || n+it.Images <= b.limits.Images) &&
				(of < 0 || w.turn < first) {
				of, first = n, w.turn
			}
		}
		if of < 0 {
			continue
		}
		q := b.waiting[room][of]
		row = q.rows[q.first].row
		if q.first++; q.first == len(q.rows) {
			delete(b.waiting[room], of)
		}
		if len(b.waiting[room]) == 0 {
			b.rooms.remove(room)
		}
		return row, room, of
	}
	return -1, 0, 0
}

// next returns the next larger room in the set, -1 for none.
func next(s lengthSet, room int) int {
	if room+1 >= len(s)*64 {
		return -1
	}
	return s.atLeast(room + 1)
}

// hashBucket follows LoongForge's packer of this name (tools/data_preprocess/vlm/offline_packing): first rows of
// lengths that divide the row by a power of two, in turn; then rows grown from the longest items, in rounds of less and
// less demand; then simple rows of at least 95 %. Where it draws at random, this takes the longest that fits.
func hashBucket(items []Item, l Limits) (rows [][]int, left []int) {
	order, left := split(items, l)
	b := &buckets{items: items, limits: l, ids: map[int][]int{}, lengths: newLengthSet(l.Tokens)}
	for _, i := range order {
		b.put(i)
	}
	b.divisors()
	for _, r := range hashRounds {
		b.round(r.items, r.fill)
	}
	b.round(1, 0.95)
	for n := b.lengths.atMost(l.Tokens); n >= 0; n = b.lengths.atMost(n - 1) {
		left = append(left, b.ids[n]...)
	}
	return b.rows, left
}

// hashRounds are the demands on a row: so many items and so full.
var hashRounds = []struct {
	items int
	fill  float64
}{{1, .96}, {1, .95}, {8, .9}, {4, .92}, {6, .92}, {4, .9}}

const (
	manyItems = 10_000 // from which on only so many of the longest lengths seed rows
	seedsMax  = 20
)

// buckets are items by length.
type buckets struct {
	items   []Item
	limits  Limits
	ids     map[int][]int
	lengths lengthSet
	count   int
	rows    [][]int
}

// put enters item i under its length.
func (b *buckets) put(i int) {
	n := b.items[i].Tokens
	b.ids[n] = append(b.ids[n], i)
	b.lengths.add(n)
	b.count++
}

// take removes an item of a given length that needs no more images than are left. It returns false if there
// is no such item.
func (b *buckets) take(n, images int) (int, bool) {
	list := b.ids[n]
	for k := len(list) - 1; k >= 0; k-- {
		i := list[k]
		if b.limits.Images > 0 && b.items[i].Images > images {
			continue
		}
		b.ids[n] = append(list[:k], list[k+1:]...)
		if len(b.ids[n]) == 0 {
			b.lengths.remove(n)
		}
		b.count--
		return i, true
	}
	return 0, false
}

// divisors makes full rows of lengths that divide the row by a power of two, each length in turn.
func (b *buckets) divisors() {
	for {
		room, images := b.limits.Tokens, b.limits.Images
		var row []int
		for grown := true; grown && room > 0; {
			grown = false
			for q := 1 << 30; q >= 1; q >>= 1 {
				n := b.limits.Tokens / q
				if n == 0 || n > room || b.limits.Tokens%q != 0 {
					continue
				}
				if i, ok := b.take(n, images); ok {
					row, room, images, grown = append(row, i), room-n, images-b.items[i].Images, true
				}
			}
		}
		if room > 0 {
			b.back(row)
			return
		}
		b.rows = append(b.rows, row)
	}
}

// back puts the items of a row back, last first, so that they come again in the same order.
func (b *buckets) back(row []int) {
	for k := len(row) - 1; k >= 0; k-- {
		b.put(row[k])
	}
}

// round makes rows of at least so many items and so full, from the longest items on.
func (b *buckets) round(least int, fill float64) {
	seeds := 0
	for n := b.lengths.atMost(b.limits.Tokens); n >= 0; {
		if seeds == seedsMax && b.count > manyItems {
			return
		}
		row := b.grow(n, least, fill)
		if row != nil {
			b.rows = append(b.rows, row)
			n = b.lengths.atMost(n) // the same length again, if any is left
			continue
		}
		seeds++
		n = b.lengths.atMost(n - 1)
	}
}

// grow takes an item of a length and the longest ones that fit beside it, short enough for the number
// wanted; nil if the row does not come up to the demand.
func (b *buckets) grow(n, least int, fill float64) []int {
	i, ok := b.take(n, b.limits.Images)
	if !ok {
		return nil
	}
	row, room, images := []int{i}, b.limits.Tokens-n, b.limits.Images-b.items[i].Images
	for most := room; room > 0; {
		if missing := least - len(row); missing > 1 {
			most = min(most, room/missing)
		} else {
			most = min(most, room)
		}
		if most = b.lengths.atMost(most); most < 1 {
			break
		}
		i, ok := b.take(most, images)
		if !ok {
			most--
			continue
		}
		row, room, images = append(row, i), room-most, images-b.items[i].Images
		most = room
	}
	if len(row) < least || float64(b.limits.Tokens-room) < fill*float64(b.limits.Tokens) {
		b.back(row)
		return nil
	}
	return row
}
