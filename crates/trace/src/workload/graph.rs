//! Graph workloads: PageRank and connected components on a generated power-law graph or a given
//! graph.
//!
//! The graph is stored in compressed form, as in the modelled program: an array of offsets (8 bytes
//! per vertex), one of neighbours (4 bytes per edge) and two of values (8 bytes per vertex),
//! contiguous from address 0, each page-aligned. Components are actually computed, because stores
//! depend on the labels. PageRank makes the same references whatever its values, so they are not
//! stored.

use super::RecordSource;
use super::distributions::Permutation;
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, MemRef, MemoryAccess};
use crate::text_fields::{blank_fields, shorten, uint};
use std::path::Path;

/// Maximum number of edges generated or read: 2^31, about 25 GB while sorting.
const MAX_EDGES: u64 = 1 << 31;
const PAGE: u64 = 4096;

/// A directed graph indexed by target: `sources[offsets[v]..offsets[v + 1]]` are the vertices with
/// an edge to v.
struct Graph {
    offsets: Vec<u64>,
    sources: Vec<u32>,
}

impl Graph {
    fn new(vertices: u32, edges: &[(u32, u32)]) -> Graph {
        let mut offsets = vec![0u64; vertices as usize + 1];
        for (_, target) in edges {
            offsets[*target as usize + 1] += 1;
        }
        for v in 0..vertices as usize {
            offsets[v + 1] += offsets[v];
        }
        let mut next = offsets.clone();
        let mut sources = vec![0; edges.len()];
        for (source, target) in edges {
            let at = &mut next[*target as usize];
            sources[*at as usize] = *source;
            *at += 1;
        }
        Graph { offsets, sources }
    }

    fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }
}

/// Start addresses of the arrays.
struct Layout {
    sources: u64,
    values: u64,
    next: u64,
    gap: u32,
}

impl Layout {
    fn new(graph: &Graph, gap: u32) -> Layout {
        let up = |bytes: u64| bytes.next_multiple_of(PAGE);
        let sources = up(graph.offsets.len() as u64 * 8);
        let values = sources + up(graph.sources.len() as u64 * 4);
        let next = values + up(graph.vertices() as u64 * 8);
        Layout { sources, values, next, gap }
    }

    fn item(&self, addr: u64, size: u32, access: MemoryAccess) -> Item {
        Item::Mem(MemRef { gap: self.gap, addr, size, access })
    }
}

/// R-MAT edges (Chakrabarti, Zhan, Faloutsos, SDM 2004), with vertices shuffled as in Graph500.
fn rmat(spec: &Spec, seed: u64) -> Result<(u32, Vec<(u32, u32)>), SpecFault> {
    let scale = spec.int_in("scale", 1..=31)?;
    let factor = spec.int_in("edgefactor", 1..=MAX_EDGES >> scale.min(31))?;
    let (a, b, c) = (spec.real("a"), spec.real("b"), spec.real("c"));
    if a + b + c > 1.0 + 1e-12 {
        return Err(SpecFault::Values(format!("a + b + c is {}, expected at most 1", a + b + c)));
    }
    let vertices = 1u32 << scale;
    let mut rng = Rng::new(seed, "rmat");
    let shuffle = Permutation::new(vertices.into(), seed);
    let mut edge = || {
        let (mut source, mut target) = (0u64, 0u64);
        for _ in 0..scale {
            let draw = rng.unit();
            let (down, right) = (draw >= a + b, (draw >= a && draw < a + b) || draw >= a + b + c);
            source = source << 1 | u64::from(down);
            target = target << 1 | u64::from(right);
        }
        (shuffle.at(source) as u32, shuffle.at(target) as u32)
    };
    Ok((vertices, (0..factor << scale).map(|_| edge()).collect()))
}

/// Reads an edge list. Vertices are renumbered in the order of their numbers in the file, so that
/// memory depends on the length of the file, not on its numbers.
fn edge_list(path: &str) -> Result<(u32, Vec<(u32, u32)>), SpecFault> {
    let bad = |why: String| SpecFault::File(format!("edge list {path}: {why}"));
    let (input, _) =
        crate::input_stream::open(Path::new(path)).map_err(|e| SpecFault::File(e.to_string()))?;
    let mut lines = crate::input_stream::Lines::new(input);
    let mut edges: Vec<(u64, u64)> = Vec::new();
    loop {
        let number = lines.number + 1;
        let text = match lines.next().map_err(|e| bad(e.to_string()))? {
            crate::input_stream::Line::End => break,
            crate::input_stream::Line::TooLong(_) => {
                return Err(bad(format!("line {number} is too long")));
            }
            crate::input_stream::Line::Text(text) => text.trim_ascii(),
        };
        if text.is_empty() || text.starts_with(b"#") || text.starts_with(b"%") {
            continue;
        }
        let (f, n) = blank_fields::<2>(text);
        let edge = if n < 2 {
            Err("expected source and target".to_string())
        } else {
            uint(f[0], "source").and_then(|s| Ok((s, uint(f[1], "target")?)))
        };
        edges.push(edge.map_err(|why| bad(format!("line {number} in \"{}\": {why}", shorten(text, 40))))?);
        if edges.len() as u64 > MAX_EDGES {
            return Err(bad(format!("more than {MAX_EDGES} edges")));
        }
    }
    if edges.is_empty() {
        return Err(bad("the file has no edges".to_string()));
    }
    let mut ids: Vec<u64> = edges.iter().flat_map(|(s, t)| [*s, *t]).collect();
    ids.sort_unstable();
    ids.dedup();
    let vertices = u32::try_from(ids.len()).map_err(|_| bad("more than 2^32 vertices".to_string()))?;
    let index = |id: u64| ids.binary_search(&id).map_or(0, |i| i as u32);
    Ok((vertices, edges.iter().map(|(s, t)| (index(*s), index(*t))).collect()))
}

fn edges(spec: &Spec, seed: u64) -> Result<(u32, Vec<(u32, u32)>), SpecFault> {
    match spec.text("file") {
        "" => rmat(spec, seed),
        path => edge_list(path),
    }
}

fn gap(spec: &Spec) -> Result<u32, SpecFault> {
    Ok(spec.int_in("gap", 0..=u64::from(u32::MAX))? as u32)
}

/// Visits all vertices and their edges, as both algorithms do: per vertex its two offsets, per edge
/// the neighbour and its value, then the vertex's result.
struct Walk {
    graph: Graph,
    layout: Layout,
    vertex: usize,
    edge: u64,
    at: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Offset,
    OffsetEnd,
    Neighbour,
    Value(u32),
    Result,
}

enum Walked {
    Item(Item),
    /// The value of this vertex has been loaded.
    Loaded(Item, u32),
    /// All edges of the vertex have been visited.
    VertexDone(usize),
    RoundDone,
}

impl Walk {
    fn new(graph: Graph, gap: u32) -> Walk {
        let layout = Layout::new(&graph, gap);
        Walk { graph, layout, vertex: 0, edge: 0, at: Step::Offset }
    }

    fn next(&mut self) -> Walked {
        let layout = &self.layout;
        let v = self.vertex;
        if v == self.graph.vertices() {
            self.vertex = 0;
            return Walked::RoundDone;
        }
        match self.at {
            Step::Offset => {
                self.at = Step::OffsetEnd;
                self.edge = self.graph.offsets[v];
                Walked::Item(layout.item(v as u64 * 8, 8, MemoryAccess::Load))
            }
            Step::OffsetEnd => {
                self.at = if self.edge < self.graph.offsets[v + 1] { Step::Neighbour } else { Step::Result };
                Walked::Item(layout.item((v as u64 + 1) * 8, 8, MemoryAccess::Load))
            }
            Step::Neighbour => {
                self.at = Step::Value(self.graph.sources[self.edge as usize]);
                Walked::Item(layout.item(layout.sources + self.edge * 4, 4, MemoryAccess::Load))
            }
            Step::Value(neighbour) => {
                self.edge += 1;
                self.at = if self.edge < self.graph.offsets[v + 1] { Step::Neighbour } else { Step::Result };
                let addr = layout.values + u64::from(neighbour) * 8;
                Walked::Loaded(layout.item(addr, 8, MemoryAccess::Load), neighbour)
            }
            Step::Result => {
                self.at = Step::Offset;
                self.vertex += 1;
                Walked::VertexDone(v)
            }
        }
    }
}

/// PageRank by pulling: a vertex's new value is the sum of its in-neighbours' values, each stored
/// divided by its out-degree. The two value arrays are swapped every round.
pub(super) struct PageRank {
    walk: Walk,
    rounds: Option<u64>,
    swapped: bool,
}

impl PageRank {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<PageRank, SpecFault> {
        let gap = gap(spec)?;
        let (vertices, edges) = edges(spec, seed)?;
        let rounds = Some(spec.int("rounds")).filter(|r| *r > 0);
        Ok(PageRank { walk: Walk::new(Graph::new(vertices, &edges), gap), rounds, swapped: false })
    }

    /// The same reference in the current value array.
    fn side(&self, item: Item, store: bool) -> Item {
        let Item::Mem(mut m) = item else { return item };
        let distance = self.walk.layout.next - self.walk.layout.values;
        match (store, self.swapped) {
            (false, true) if m.addr >= self.walk.layout.values => m.addr += distance,
            (true, true) => m.addr -= distance,
            _ => {}
        }
        Item::Mem(m)
    }
}

impl RecordSource for PageRank {
    fn next(&mut self) -> Option<Item> {
        loop {
            if self.rounds == Some(0) {
                return None;
            }
            match self.walk.next() {
                Walked::Item(item) => return Some(item),
                Walked::Loaded(item, _) => return Some(self.side(item, false)),
                Walked::VertexDone(v) => {
                    let item =
                        self.walk.layout.item(self.walk.layout.next + v as u64 * 8, 8, MemoryAccess::Store);
                    return Some(self.side(item, true));
                }
                Walked::RoundDone => {
                    self.swapped = !self.swapped;
                    self.rounds = self.rounds.map(|r| r - 1);
                }
            }
        }
    }

    fn ends(&self) -> bool {
        self.rounds.is_some()
    }
}

/// Connected components: each vertex takes the smallest label of its neighbours (in both edge
/// directions) and itself, in place, until a round changes nothing.
pub(super) struct Components {
    walk: Walk,
    labels: Vec<u32>,
    least: u32,
    changed: bool,
    rounds: Option<u64>,
    finished: bool,
}

impl Components {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Components, SpecFault> {
        let gap = gap(spec)?;
        let (vertices, mut edges) = edges(spec, seed)?;
        edges.extend_from_within(..);
        let half = edges.len() / 2;
        for edge in &mut edges[half..] {
            *edge = (edge.1, edge.0);
        }
        Ok(Components {
            walk: Walk::new(Graph::new(vertices, &edges), gap),
            labels: (0..vertices).collect(),
            least: u32::MAX,
            changed: false,
            rounds: Some(spec.int("rounds")).filter(|r| *r > 0),
            finished: false,
        })
    }
}

impl RecordSource for Components {
    fn next(&mut self) -> Option<Item> {
        while !self.finished {
            match self.walk.next() {
                Walked::Item(item) => return Some(item),
                Walked::Loaded(item, neighbour) => {
                    self.least = self.least.min(self.labels[neighbour as usize]);
                    return Some(item);
                }
                Walked::VertexDone(v) => {
                    let least = std::mem::replace(&mut self.least, u32::MAX);
                    if least < self.labels[v] {
                        self.labels[v] = least;
                        self.changed = true;
                        return Some(self.walk.layout.item(
                            self.walk.layout.values + v as u64 * 8,
                            8,
                            MemoryAccess::Store,
                        ));
                    }
                }
                Walked::RoundDone => {
                    self.rounds = self.rounds.map(|r| r - 1);
                    self.finished = !std::mem::take(&mut self.changed) || self.rounds == Some(0);
                }
            }
        }
        None
    }

    fn ends(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_a_known_graph_get_their_least_vertex() {
        let path = std::env::temp_dir().join(format!("deepram-cc-{}.txt", std::process::id()));
        std::fs::write(&path, "# two components\n10 20\n20 30\n7 900000000000\n").unwrap();
        let spec: Spec = format!("cc:file={}", path.display()).parse().unwrap();
        let mut cc = Components::new(&spec, 1).ok().unwrap();
        while cc.next().is_some() {}
        // Vertices in order: 7, 10, 20, 30, 900000000000.
        assert_eq!(cc.labels, [0, 1, 1, 1, 0]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn pagerank_makes_two_loads_an_edge_two_loads_and_a_store_a_vertex_a_round() {
        let spec: Spec = "pagerank:scale=8,edgefactor=4,rounds=3".parse().unwrap();
        let mut stream = PageRank::new(&spec, 1).ok().unwrap();
        let (mut loads, mut stores) = (0u64, 0u64);
        while let Some(Item::Mem(m)) = stream.next() {
            match m.access {
                MemoryAccess::Load => loads += 1,
                _ => stores += 1,
            }
        }
        assert_eq!((loads, stores), (3 * (2 * 256 + 2 * 1024), 3 * 256));
    }

    #[test]
    fn rmat_edges_fall_into_the_four_quarters_in_proportion() {
        let spec: Spec = "pagerank:scale=1,edgefactor=100000".parse().unwrap();
        let (_, edges) = rmat(&spec, 3).ok().unwrap();
        // With one bit the shuffle is a swap or none: the first quarter is the more frequent diagonal.
        let count = |e: (u32, u32)| edges.iter().filter(|x| **x == e).count() as f64 / edges.len() as f64;
        let (high, low) = (count((0, 0)).max(count((1, 1))), count((0, 0)).min(count((1, 1))));
        // Five standard deviations of a share p of 200,000 are below 0.0056.
        for (share, p) in [(high, 0.57), (low, 0.05), (count((0, 1)), 0.19), (count((1, 0)), 0.19)] {
            assert!((share - p).abs() < 0.0056, "{share} {p}");
        }
    }
}
