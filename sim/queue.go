package sim

// item is an event in the queue: message msg of the slab at a time; order and seq decide among simultaneous ones.
type item struct {
	at    int64
	order uint64
	seq   uint64
	msg   int32
}

func (a *item) before(b *item) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.order != b.order {
		return a.order < b.order
	}
	return a.seq < b.seq
}

// queue is a heap of four children a node: fewer levels than two, and the children share cache lines.
type queue struct{ a []item }

func (q *queue) push(x item) {
	q.a = append(q.a, x)
	i := len(q.a) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !x.before(&q.a[up]) {
			break
		}
		q.a[i] = q.a[up]
		i = up
	}
	q.a[i] = x
}

func (q *queue) pop() item {
	top := q.a[0]
	n := len(q.a) - 1
	x := q.a[n]
	q.a = q.a[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if q.a[c].before(&q.a[least]) {
				least = c
			}
		}
		if !q.a[least].before(&x) {
			break
		}
		q.a[i] = q.a[least]
		i = least
	}
	q.a[i] = x
	return top
}
