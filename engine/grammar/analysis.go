package grammar

// fixpoint finds the nodes from which the end of the rule can be reached, by reading as readable says.
func (c *compiler) fixpoint(readable bool) []bool {
	before := make([][]int32, len(c.nodes))
	for i := range c.nodes {
		n := &c.nodes[i]
		for _, o := range n.outs {
			before[o] = append(before[o], int32(i))
		}
		if n.kind == match || n.kind == enter {
			before[n.next] = append(before[n.next], int32(i))
		}
		if n.kind == enter {
			before[n.entry] = append(before[n.entry], int32(i))
		}
	}
	found := make([]bool, len(c.nodes))
	found[leaveNode] = true
	work := []int32{leaveNode}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		for _, i := range before[at] {
			n := &c.nodes[i]
			if !found[i] && (n.kind == split || n.kind == match && readable || n.kind == enter && found[n.entry] && found[n.next]) {
				found[i] = true
				work = append(work, i)
			}
		}
	}
	return found
}

// prune marks what can lead to an end.
func (c *compiler) prune() {
	for i, ok := range c.fixpoint(true) {
		c.nodes[i].live = ok
	}
}

// leftRecursion returns a rule that may call itself before it has read anything.
func (c *compiler) leftRecursion() *rule {
	empty := c.fixpoint(false)
	const unseen, open, done = 0, 1, 2
	state := make([]uint8, len(c.nodes)) // of rules, at their entries
	nameOf := map[int32]*rule{}
	for i, r := range c.order {
		nameOf[c.entries[i]] = r
	}
	var found *rule
	type visit struct {
		entry int32
		calls []int32
	}
	for _, root := range c.entries {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		stack := []visit{{root, c.firstCalls(root, empty)}}
		for len(stack) > 0 && found == nil {
			top := &stack[len(stack)-1]
			if len(top.calls) == 0 {
				state[top.entry] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := top.calls[0]
			top.calls = top.calls[1:]
			switch state[to] {
			case open:
				found = nameOf[to]
			case unseen:
				state[to] = open
				stack = append(stack, visit{to, c.firstCalls(to, empty)})
			}
		}
	}
	return found
}

// firstCalls lists the rules that the one at entry may call before it reads a byte.
func (c *compiler) firstCalls(entry int32, empty []bool) (list []int32) {
	seen := map[int32]bool{entry: true}
	work := []int32{entry}
	push := func(at int32) {
		if !seen[at] && c.nodes[at].live {
			seen[at] = true
			work = append(work, at)
		}
	}
	for len(work) > 0 {
		n := &c.nodes[work[len(work)-1]]
		work = work[:len(work)-1]
		for _, o := range n.outs {
			push(o)
		}
		if n.kind == enter {
			list = append(list, n.entry)
			if empty[n.entry] {
				push(n.next)
			}
		}
	}
	return list
}
