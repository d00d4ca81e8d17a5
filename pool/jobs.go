package pool

// jobs are what environments in flight are to do, a row each.
type jobs struct {
	env, action   []int32
	parent, child []int32 // slots of the state and of the next one
	kind          []jobKind
}

func (q *jobs) len() int { return len(q.env) }

// extend adds n rows with undefined contents at the end; a negative n takes rows away.
func (q *jobs) extend(n int) {
	n += q.len()
	q.env, q.action = resize(q.env, n), resize(q.action, n)
	q.parent, q.child = resize(q.parent, n), resize(q.child, n)
	q.kind = resize(q.kind, n)
}

// resize changes a slice's length and keeps what is there.
func resize[T any](x []T, n int) []T {
	if n <= cap(x) {
		return x[:n]
	}
	return append(x, make([]T, n-len(x))...)
}

// move takes the first n rows of q, whose others move up; what was in dst is forgotten.
func (q *jobs) move(n int, dst *jobs) {
	if n == q.len() {
		*q, *dst = *dst, *q
		q.extend(-q.len())
		return
	}
	q.env, dst.env = split(q.env, dst.env, n)
	q.action, dst.action = split(q.action, dst.action, n)
	q.parent, dst.parent = split(q.parent, dst.parent, n)
	q.child, dst.child = split(q.child, dst.child, n)
	q.kind, dst.kind = split(q.kind, dst.kind, n)
}

func split[T any](from, to []T, n int) (rest, first []T) {
	first = append(to[:0], from[:n]...)
	return append(from[:0], from[n:]...), first
}
