//! The modules of a crate, and the items that paths in them name.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;

use syn::{Attribute, Item, UseTree, Visibility};

/// A path of modules from the root of the crate.
pub(super) type ModulePath = Vec<String>;

/// A module: its items other than modules and uses, and what it uses.
#[derive(Default)]
pub(super) struct Module {
    pub(super) items: Vec<Item>,
    pub(super) uses: Vec<Use>,
    /// The public modules in it.
    pub(super) public_modules: Vec<String>,
}

/// A name that a `use` brings into a module.
pub(super) struct Use {
    pub(super) is_public: bool,
    pub(super) path: Vec<String>,
    /// `None` for all names of the path.
    pub(super) name: Option<String>,
}

/// What a path names in this crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Module(ModulePath),
    /// An item of a module, by its name.
    Item(ModulePath, String),
}

/// The modules of a crate without those of its tests.
pub(super) struct Crate {
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

/// Whether an attribute such as `#[cfg(test)]` or `#[doc(hidden)]` is there.
fn has(attributes: &[Attribute], name: &str, word: &str) -> bool {
    let is_word =
        |attribute: &Attribute| attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident(word));
    attributes.iter().any(|attribute| attribute.path().is_ident(name) && is_word(attribute))
}

/// The text of `#[path = ".."]`.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The name of an item, if it has one.
pub(super) fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

impl Crate {
    /// Reads the crate with this `lib.rs`.
    pub(super) fn read(lib: &Path) -> Self {
        let mut found = Self { modules: BTreeMap::new() };
        let folder = lib.parent().expect("a source lies in a folder");
        found.read_file(lib, folder, &[]);
        found
    }

    /// Reads a module's file. The files of its own modules are in `folder`.
    fn read_file(&mut self, file: &Path, folder: &Path, path: &[String]) {
        let text = read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(parsed.items, folder, path);
    }

    fn add(&mut self, items: Vec<Item>, folder: &Path, path: &[String]) {
        let mut module = Module::default();
        for item in items {
            match item {
                Item::Mod(inner) => {
                    if has(&inner.attrs, "cfg", "test") || has(&inner.attrs, "doc", "hidden") {
                        continue;
                    }
                    let name = inner.ident.to_string();
                    if matches!(inner.vis, Visibility::Public(_)) {
                        module.public_modules.push(name.clone());
                    }
                    let inner_path = [path, std::slice::from_ref(&name)].concat();
                    match inner.content {
                        Some((_, items)) => self.add(items, &folder.join(&name), &inner_path),
                        None => self.read_module(folder, &name, path_of(&inner.attrs), &inner_path),
                    }
                }
                Item::Use(item) => {
                    let is_public = matches!(item.vis, Visibility::Public(_));
                    leaves(&item.tree, &mut Vec::new(), is_public, &mut module.uses);
                }
                other => module.items.push(other),
            }
        }
        self.modules.insert(path.to_vec(), module);
    }

    fn read_module(&mut self, folder: &Path, name: &str, file: Option<String>, path: &[String]) {
        let inner = folder.join(name);
        let candidates = match file {
            Some(file) => vec![folder.join(file)],
            None => vec![folder.join(format!("{name}.rs")), inner.join("mod.rs")],
        };
        let file = candidates.into_iter().find(|file| file.exists());
        let file = file.unwrap_or_else(|| panic!("no file of the module {name} in {}", folder.display()));
        self.read_file(&file, &inner, path);
    }

    /// The item that a module declares under a name.
    pub(super) fn items<'a>(&'a self, module: &[String], name: &'a str) -> impl Iterator<Item = &'a Item> {
        let items = self.modules.get(module).into_iter().flat_map(|module| &module.items);
        items.filter(move |item| name_of(item).as_deref() == Some(name))
    }

    /// What a path in a module names; `None` if it leads out of the crate.
    pub(super) fn resolve(&self, module: &[String], path: &[String]) -> Option<Named> {
        self.resolve_within(module, path, 16)
    }

    /// `steps` bounds uses of uses, which may form a circle.
    fn resolve_within(&self, module: &[String], path: &[String], steps: usize) -> Option<Named> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Named::Module(Vec::new()),
            "self" => Named::Module(module.to_vec()),
            "super" => Named::Module(module.split_last()?.1.to_vec()),
            name => self.lookup(module, name, steps)?,
        };
        match (start, rest) {
            (found, []) => Some(found),
            (Named::Module(inner), rest) => self.resolve_within(&inner, rest, steps),
            (Named::Item(..), _) => None,
        }
    }

    /// What a name means in a module.
    fn lookup(&self, module: &[String], name: &str, steps: usize) -> Option<Named> {
        let inner = [module, &[name.to_owned()]].concat();
        if self.modules.contains_key(&inner) {
            return Some(Named::Module(inner));
        }
        if self.items(module, name).next().is_some() {
            return Some(Named::Item(module.to_vec(), name.to_owned()));
        }
        let uses = &self.modules.get(module)?.uses;
        let by_name = uses.iter().filter(|used| used.name.as_deref() == Some(name));
        let by_name = by_name.filter(|used| used.path.first().is_none_or(|first| first != name));
        let found = by_name.filter_map(|used| self.resolve_within(module, &used.path, steps)).next();
        found.or_else(|| {
            let all = uses.iter().filter(|used| used.name.is_none());
            let name = [name.to_owned()];
            all.filter_map(|used| match self.resolve_within(module, &used.path, steps)? {
                Named::Module(inner) if inner != module => self.resolve_within(&inner, &name, steps),
                _ => None,
            })
            .next()
        })
    }
}

/// Collects the names of a tree of uses.
fn leaves(tree: &UseTree, path: &mut Vec<String>, is_public: bool, found: &mut Vec<Use>) {
    let mut leaf = |last: Option<String>, name: Option<String>| {
        let path = path.iter().cloned().chain(last).collect();
        found.push(Use { is_public, path, name });
    };
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            leaves(&inner.tree, path, is_public, found);
            path.pop();
        }
        UseTree::Name(name) if name.ident == "self" => leaf(None, path.last().cloned()),
        UseTree::Name(name) => leaf(Some(name.ident.to_string()), Some(name.ident.to_string())),
        UseTree::Rename(name) => leaf(Some(name.ident.to_string()), Some(name.rename.to_string())),
        UseTree::Glob(_) => leaf(None, None),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| leaves(tree, path, is_public, found));
        }
    }
}
