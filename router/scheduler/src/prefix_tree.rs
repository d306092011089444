//! The prefix tree: which block holds the KV of which tokens after which others.
//!
//! A radix tree whose edges are runs of whole blocks. A node holds blocks, and the tokens they are the KV of; the way
//! from a root to a node spells a prefix. Every root has a typed key, and tokens are compared on every step of a walk,
//! so a hit is never a coincidence of hashes.
//!
//! Who holds a block is the pool's business; the tree is told when a block is idle. What it relies on: whoever holds a
//! block of the tree holds all blocks before it on its way, so what is idle can be given up from the leaves.
//!
//! A lookup costs one comparison of each block's tokens and a binary search among siblings where ways part.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::request::CacheRoot;
use crate::units::{BlockId, TokenId};

type NodeId = u32;

/// No node: the parent of a root, the home of a block that is not in the tree.
const NONE: NodeId = NodeId::MAX;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrefixTree {
    /// Tokens of a block.
    block_size: usize,
    nodes: Vec<Node>,
    vacant: Vec<NodeId>,
    roots: BTreeMap<CacheRoot, NodeId>,
    /// The node of each block.
    home: Vec<NodeId>,
    /// Counts uses: the tree's own time.
    clock: u64,
    /// Leaves whose last block is idle, least recently used first.
    idle_leaves: BTreeSet<(u64, NodeId)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    parent: NodeId,
    /// Blocks before this node's first on the way from the root.
    depth: u32,
    /// Tokens of `blocks`; empty for a root.
    tokens: Vec<TokenId>,
    blocks: Vec<BlockId>,
    /// Ordered by the tokens of their first block; no two begin with the same.
    children: Vec<NodeId>,
    used: u64,
    /// In `idle_leaves`.
    listed: bool,
}

/// Where a walk stands: behind the first `within` blocks of a node.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: NodeId,
    within: usize,
}

impl PrefixTree {
    pub fn new(block_size: u32, total_blocks: u32) -> Self {
        Self {
            block_size: block_size as usize,
            nodes: Vec::new(),
            vacant: Vec::new(),
            roots: BTreeMap::new(),
            home: vec![NONE; total_blocks as usize],
            clock: 0,
            idle_leaves: BTreeSet::new(),
        }
    }

    /// Appends the blocks of the longest known beginning of `tokens` to `found`, at most `limit` of them.
    pub fn find(&self, root: &CacheRoot, tokens: &[TokenId], limit: usize, found: &mut Vec<BlockId>) {
        let Some(&root) = self.roots.get(root) else { return };
        let mut node = root;
        let mut rest = &tokens[..(limit * self.block_size).min(tokens.len())];
        while let Some(child) = self.child(node, rest) {
            let matched = self.common_blocks(&self.node(child).tokens, rest);
            found.extend_from_slice(&self.node(child).blocks[..matched]);
            if matched < self.node(child).blocks.len() {
                return;
            }
            rest = &rest[matched * self.block_size..];
            node = child;
        }
    }

    /// Puts `blocks`, the next on a way from `index` on, with their `tokens`, behind `before` (the root, if `None`). Where
    /// the way is known already, the blocks that are there go to `known`; those after them are put in.
    ///
    /// `before` is in the tree, and held by the caller; so are `blocks`, which are not in the tree.
    pub fn insert(
        &mut self,
        root: &CacheRoot,
        before: Option<BlockId>,
        index: u32,
        tokens: &[TokenId],
        blocks: &[BlockId],
        known: &mut Vec<BlockId>,
    ) {
        let mut place = match before {
            Some(before) => self.behind(before, index),
            None => Place { node: self.root(root), within: 0 },
        };
        let mut rest = tokens;
        loop {
            if place.within == self.node(place.node).blocks.len() {
                match self.child(place.node, rest) {
                    Some(child) => place = Place { node: child, within: 0 },
                    None => break,
                }
            }
            let node = self.node(place.node);
            let there = &node.blocks[place.within..];
            let matched = self.common_blocks(&node.tokens[place.within * self.block_size..], rest);
            known.extend_from_slice(&there[..matched]);
            if matched == 0 {
                break;
            }
            rest = &rest[matched * self.block_size..];
            place.within += matched;
            self.touch(place.node);
        }
        self.append(place, rest, &blocks[blocks.len() - rest.len() / self.block_size..]);
    }

    /// New blocks behind `place`: as a leaf's growth where nothing follows it, else on a way of their own.
    fn append(&mut self, place: Place, tokens: &[TokenId], blocks: &[BlockId]) {
        if blocks.is_empty() {
            return;
        }
        let here = self.node(place.node);
        let parts = place.within < here.blocks.len();
        let node = if parts {
            self.split(place);
            self.add_child(place.node, &tokens[..self.block_size])
        } else if here.blocks.is_empty() || !here.children.is_empty() {
            self.add_child(place.node, &tokens[..self.block_size])
        } else {
            self.list(place.node, false);
            place.node
        };
        let grown = self.node_mut(node);
        grown.tokens.extend_from_slice(tokens);
        grown.blocks.extend_from_slice(blocks);
        blocks.iter().for_each(|block| self.home[block.0 as usize] = node);
        self.touch(node);
    }

    /// The blocks, found by a lookup, are used and held again. `is_idle` says whether nobody holds a block.
    pub fn use_again(&mut self, blocks: &[BlockId], is_idle: impl Fn(BlockId) -> bool) {
        let mut last = NONE;
        for &block in blocks {
            let node = self.home[block.0 as usize];
            if node != last {
                self.touch(node);
                // A node of which only the beginning was found may still end in an idle block.
                let ends_idle = self.node(node).blocks.last().is_some_and(|&block| is_idle(block));
                self.list(node, ends_idle && self.node(node).children.is_empty());
                last = node;
            }
        }
    }

    /// Nobody holds the block any more.
    pub fn idle(&mut self, block: BlockId) {
        let node = self.home[block.0 as usize];
        self.touch(node);
        if self.node(node).children.is_empty() && self.node(node).blocks.last() == Some(&block) {
            self.list(node, true);
        }
    }

    /// Gives up the last block of the least recently used leaf. `is_idle` says whether nobody holds a block.
    pub fn evict(&mut self, is_idle: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let &(_, leaf) = self.idle_leaves.first()?;
        let block_size = self.block_size;
        let node = self.node_mut(leaf);
        let block = node.blocks.pop()?;
        node.tokens.truncate(node.blocks.len() * block_size);
        self.home[block.0 as usize] = NONE;
        match self.node(leaf).blocks.last() {
            Some(&last) if is_idle(last) => {}
            Some(_) => self.list(leaf, false),
            None => self.remove(leaf, is_idle),
        }
        Some(block)
    }

    /// Rewrites all tokens, keeping equal blocks equal and others apart.
    pub fn hide(&mut self, mut hide: impl FnMut(&mut [TokenId])) {
        self.nodes.iter_mut().for_each(|node| hide(&mut node.tokens));
        for node in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[node].children);
            children.sort_by(|a, b| self.node(*a).tokens.cmp(&self.node(*b).tokens));
            self.nodes[node].children = children;
        }
    }

    pub fn hide_roots(&mut self, mut hide: impl FnMut(&CacheRoot) -> CacheRoot) {
        self.roots = std::mem::take(&mut self.roots).iter().map(|(root, node)| (hide(root), *node)).collect();
    }

    /// Blocks of the tree.
    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.home.iter().filter(|&&home| home != NONE).count()
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node as usize]
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn root(&mut self, key: &CacheRoot) -> NodeId {
        if let Some(&root) = self.roots.get(key) {
            return root;
        }
        let root = self.add(Node::new(NONE, 0));
        self.roots.insert(key.clone(), root);
        root
    }

    /// The place behind a block, which is the one before `index` on its way.
    fn behind(&self, block: BlockId, index: u32) -> Place {
        let node = self.home[block.0 as usize];
        Place { node, within: (index - self.node(node).depth) as usize }
    }

    /// The child that begins with the first block of `tokens`.
    fn child(&self, node: NodeId, tokens: &[TokenId]) -> Option<NodeId> {
        let first = tokens.get(..self.block_size)?;
        let place = self.search(node, first).ok()?;
        Some(self.node(node).children[place])
    }

    fn search(&self, node: NodeId, first: &[TokenId]) -> Result<usize, usize> {
        let of = |child: &NodeId| -> Ordering { self.node(*child).tokens[..self.block_size].cmp(first) };
        self.node(node).children.binary_search_by(of)
    }

    fn common_blocks(&self, known: &[TokenId], tokens: &[TokenId]) -> usize {
        let pairs = known.chunks_exact(self.block_size).zip(tokens.chunks_exact(self.block_size));
        pairs.take_while(|(a, b)| a == b).count()
    }

    fn add(&mut self, node: Node) -> NodeId {
        match self.vacant.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as NodeId - 1
            }
        }
    }

    /// A new child without blocks; the caller puts in those that begin with `first`.
    fn add_child(&mut self, parent: NodeId, first: &[TokenId]) -> NodeId {
        let depth = self.node(parent).depth + self.node(parent).blocks.len() as u32;
        let place = self.search(parent, first).unwrap_or_else(|place| place);
        let child = self.add(Node::new(parent, depth));
        // The parent has a child now: it is no leaf.
        self.list(parent, false);
        self.node_mut(parent).children.insert(place, child);
        child
    }

    /// Cuts a node in two, so that ways can part at `place`. The node keeps its beginning.
    fn split(&mut self, place: Place) {
        let block_size = self.block_size;
        let node = self.node_mut(place.node);
        let blocks = node.blocks.split_off(place.within);
        let tokens = node.tokens.split_off(place.within * block_size);
        let children = std::mem::take(&mut node.children);
        let (depth, used, listed) = (node.depth + place.within as u32, node.used, node.listed);
        self.list(place.node, false);
        let tail = self.add(Node { parent: place.node, depth, tokens, blocks, children, used, listed: false });
        self.list(tail, listed);
        for index in 0..self.node(tail).blocks.len() {
            let block = self.node(tail).blocks[index];
            self.home[block.0 as usize] = tail;
        }
        for index in 0..self.node(tail).children.len() {
            let child = self.node(tail).children[index];
            self.node_mut(child).parent = tail;
        }
        self.node_mut(place.node).children.push(tail);
    }

    /// Takes an empty leaf out; its parent may be an idle leaf now, or an empty root.
    fn remove(&mut self, leaf: NodeId, is_idle: impl Fn(BlockId) -> bool) {
        self.list(leaf, false);
        let parent = self.node(leaf).parent;
        self.vacant.push(leaf);
        let siblings = &mut self.node_mut(parent).children;
        siblings.retain(|child| *child != leaf);
        if !siblings.is_empty() {
            return;
        }
        match self.node(parent).blocks.last() {
            Some(&last) if is_idle(last) => self.list(parent, true),
            Some(_) => {}
            None => {
                self.vacant.push(parent);
                self.roots.retain(|_, root| *root != parent);
            }
        }
    }

    fn touch(&mut self, node: NodeId) {
        self.clock += 1;
        let clock = self.clock;
        let listed = self.node(node).listed;
        self.list(node, false);
        self.node_mut(node).used = clock;
        self.list(node, listed);
    }

    fn list(&mut self, node: NodeId, listed: bool) {
        let entry = (self.node(node).used, node);
        if std::mem::replace(&mut self.node_mut(node).listed, listed) == listed {
            return;
        }
        if listed {
            self.idle_leaves.insert(entry);
        } else {
            self.idle_leaves.remove(&entry);
        }
    }
}

impl Node {
    fn new(parent: NodeId, depth: u32) -> Self {
        Self { parent, depth, tokens: vec![], blocks: vec![], children: vec![], used: 0, listed: false }
    }
}

#[cfg(test)]
impl PrefixTree {
    pub fn holds(&self, block: BlockId) -> bool {
        self.home[block.0 as usize] != NONE
    }

    /// The tree's own books: every node's blocks know their home, siblings differ in their first block and are in order,
    /// and nodes but roots are not empty.
    pub fn check(&self) {
        let mut homes = 0;
        let mut nodes: Vec<NodeId> = self.roots.values().copied().collect();
        while let Some(id) = nodes.pop() {
            let node = self.node(id);
            assert_eq!(node.tokens.len(), node.blocks.len() * self.block_size);
            assert_eq!(node.blocks.is_empty(), node.parent == NONE, "only roots are empty");
            assert_eq!(node.listed, self.idle_leaves.contains(&(node.used, id)));
            node.blocks.iter().for_each(|block| assert_eq!(self.home[block.0 as usize], id));
            homes += node.blocks.len();
            let first = |child: &NodeId| &self.node(*child).tokens[..self.block_size];
            assert!(node.children.windows(2).all(|pair| first(&pair[0]) < first(&pair[1])));
            for &child in &node.children {
                assert_eq!(self.node(child).parent, id);
                assert_eq!(self.node(child).depth as usize, node.depth as usize + node.blocks.len());
                nodes.push(child);
            }
        }
        assert_eq!(homes, self.blocks(), "every block of the tree is on a way from a root");
    }
}
