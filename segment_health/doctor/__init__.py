"""What can be wrong with a place, seen before it matters: facts are gathered once, and judged one by one."""
