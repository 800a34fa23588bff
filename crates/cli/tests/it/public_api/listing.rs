//! The lines of a listing.

use std::collections::{BTreeMap, BTreeSet};

use syn::punctuated::Punctuated;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, TraitItem, Type, Visibility, parse_quote};

use super::sources::{Crate, ModulePath, Named, name_of};

/// A line for each public item of a crate, sorted.
pub(super) fn listing(source: &Crate, library: &str) -> String {
    let mut lister = Lister { source, impls: impls(source), lines: BTreeSet::new(), open: Vec::new() };
    lister.module(library, &[]);
    // Items that a macro makes are not parsed: the macro's input stands for them.
    for (path, module) in &source.modules {
        for item in &module.items {
            if let Item::Macro(item) = item
                && item.ident.is_none()
            {
                let input = without_docs(&one_line(&[Item::Macro(item.clone())]));
                lister
                    .lines
                    .insert(format!("{}: {input}", [&[library.to_owned()], &path[..]].concat().join("::")));
            }
        }
    }
    lister.lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
}

/// Methods and implemented traits, by the type's module and name.
type Impls = BTreeMap<Named, Vec<String>>;

struct Lister<'a> {
    source: &'a Crate,
    impls: Impls,
    lines: BTreeSet<String>,
    /// The modules that are being listed: a module that uses one of them lists it no further.
    open: Vec<ModulePath>,
}

impl Lister<'_> {
    /// Lists the public items of a module under a path of users.
    fn module(&mut self, shown: &str, path: &[String]) {
        let source = self.source;
        let Some(module) = source.modules.get(path) else { return };
        if self.open.iter().any(|open| open == path) {
            return;
        }
        self.open.push(path.to_vec());
        for item in module.items.iter().filter(|item| is_public(item)) {
            if let Some(name) = name_of(item) {
                self.item(shown, &name, path, &name);
            }
        }
        for name in &module.public_modules {
            self.public_module(&format!("{shown}::{name}"), &[path, std::slice::from_ref(name)].concat());
        }
        for used in module.uses.iter().filter(|used| used.is_public) {
            match (source.resolve(path, &used.path), &used.name) {
                (Some(Named::Module(inner)), Some(name)) => {
                    self.public_module(&format!("{shown}::{name}"), &inner);
                }
                (Some(Named::Module(inner)), None) => self.module(shown, &inner),
                (Some(Named::Item(inner, item)), Some(name)) => self.item(shown, name, &inner, &item),
                (_, name) => {
                    let last = used.path.last();
                    let rename = match name {
                        None => "::*".to_owned(),
                        Some(name) if Some(name) == last => String::new(),
                        Some(name) => format!(" as {name}"),
                    };
                    self.lines.insert(format!("{shown}: pub use {}{rename}", used.path.join("::")));
                }
            }
        }
        self.open.pop();
    }

    fn public_module(&mut self, shown: &str, path: &[String]) {
        if !self.open.iter().any(|open| open == path) {
            self.lines.insert(format!("{shown}: pub mod"));
            self.module(shown, path);
        }
    }

    /// Lists an item, and its methods and traits if it is a type.
    fn item(&mut self, shown: &str, name: &str, module: &[String], item_name: &str) {
        for item in self.source.items(module, item_name) {
            let has_impls = matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Union(_) | Item::Trait(_));
            let place = if has_impls { format!("{shown}::{name}") } else { shown.to_owned() };
            self.lines.insert(format!("{place}: {}", declaration(item)));
            let key = Named::Item(module.to_vec(), item_name.to_owned());
            for line in self.impls.get(&key).into_iter().flatten() {
                self.lines.insert(format!("{place}: {line}"));
            }
        }
    }
}

fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}

/// The attributes that users of an item notice.
fn noticed(attributes: &[Attribute]) -> Vec<Attribute> {
    let names = ["derive", "non_exhaustive", "cfg"];
    let is_noticed = |attribute: &&Attribute| names.iter().any(|name| attribute.path().is_ident(name));
    attributes.iter().filter(is_noticed).cloned().collect()
}

/// An item without documentation, bodies, values and private fields, in one line.
fn declaration(item: &Item) -> String {
    let mut item = item.clone();
    match &mut item {
        Item::Const(item) => (item.attrs, *item.expr) = (noticed(&item.attrs), parse_quote!(..)),
        Item::Static(item) => (item.attrs, *item.expr) = (noticed(&item.attrs), parse_quote!(..)),
        Item::Fn(item) => (item.attrs, *item.block) = (noticed(&item.attrs), parse_quote!({})),
        Item::Type(item) => item.attrs = noticed(&item.attrs),
        Item::Struct(item) => {
            item.attrs = noticed(&item.attrs);
            without_private(&mut item.fields);
        }
        Item::Enum(item) => {
            item.attrs = noticed(&item.attrs);
            for variant in &mut item.variants {
                variant.attrs.clear();
                variant.fields.iter_mut().for_each(|field| field.attrs.clear());
            }
        }
        Item::Trait(item) => {
            item.attrs = noticed(&item.attrs);
            for inner in &mut item.items {
                match inner {
                    TraitItem::Fn(function) => {
                        function.attrs.clear();
                        function.default = function.default.take().map(|_| parse_quote!({}));
                    }
                    TraitItem::Const(item) => item.attrs.clear(),
                    TraitItem::Type(item) => item.attrs.clear(),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    let is_function = matches!(item, Item::Fn(_));
    let line = one_line(&[item]);
    let line = line.replace("private_fields: ()", "..").replace(" = ..;", "");
    let line = if is_function { line.trim_end_matches("{}") } else { &line };
    line.trim_end_matches(';').trim_end().to_owned()
}

/// Removes private fields, and leaves a mark in their place.
fn without_private(fields: &mut Fields) {
    let is_public = |field: &syn::Field| matches!(field.vis, Visibility::Public(_));
    let all = fields.iter().all(is_public);
    match fields {
        Fields::Named(named) => {
            let mut public: Punctuated<syn::Field, _> =
                named.named.iter().filter(|f| is_public(f)).cloned().collect();
            public.iter_mut().for_each(|field| field.attrs.clear());
            if !all {
                let mark: syn::FieldsNamed = parse_quote!({ private_fields: () });
                public.extend(mark.named);
            }
            named.named = public;
        }
        Fields::Unnamed(unnamed) => {
            for field in &mut unnamed.unnamed {
                field.attrs.clear();
                if !is_public(field) {
                    (field.vis, field.ty) = (Visibility::Inherited, parse_quote!(_));
                }
            }
        }
        Fields::Unit => {}
    }
}

/// Items in one line, laid out as rustfmt does where a line suffices.
fn one_line(items: &[Item]) -> String {
    let file = syn::File { shebang: None, attrs: Vec::new(), items: items.to_vec() };
    let text = prettyplease::unparse(&file);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace(", }", " }").replace("( ", "(").replace(",)", ")").replace(", )", ")");
    line.replace(" )", ")").replace("< ", "<").replace(", >", ">")
}

/// The input of a macro without the documentation in it.
fn without_docs(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("#[doc = ") {
        text.push_str(&rest[..at]);
        let after = &rest[at..];
        let end = after.find("\"]").map_or(after.len(), |end| end + 2);
        rest = after[end..].trim_start();
    }
    text + rest
}

/// The public methods and the traits of all types of a crate.
fn impls(source: &Crate) -> Impls {
    let mut found = Impls::new();
    for (path, module) in &source.modules {
        for item in &module.items {
            if let Item::Impl(block) = item
                && let Some(key) = type_of(source, path, &block.self_ty)
            {
                found.entry(key).or_default().extend(members(block));
            }
        }
    }
    found
}

/// The declared type that an `impl` is for.
fn type_of(source: &Crate, module: &[String], of: &Type) -> Option<Named> {
    match of {
        Type::Path(path) => {
            let segments: Vec<String> =
                path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            source.resolve(module, &segments)
        }
        Type::Reference(inner) => type_of(source, module, &inner.elem),
        _ => None,
    }
}

/// The lines of an `impl`: its public functions and constants, or its trait.
fn members(block: &ItemImpl) -> Vec<String> {
    if block.trait_.is_some() {
        let mut head = block.clone();
        head.attrs.clear();
        head.items.clear();
        return vec![one_line(&[Item::Impl(head)]).trim_end_matches("{}").trim_end().to_owned()];
    }
    let mut lines = Vec::new();
    for item in &block.items {
        match item {
            ImplItem::Fn(function) if matches!(function.vis, Visibility::Public(_)) => {
                let (vis, sig) = (function.vis.clone(), function.sig.clone());
                let function = syn::ItemFn { attrs: Vec::new(), vis, sig, block: parse_quote!({}) };
                lines.push(declaration(&Item::Fn(function)));
            }
            ImplItem::Const(constant) if matches!(constant.vis, Visibility::Public(_)) => {
                let (vis, name, ty) = (&constant.vis, &constant.ident, &constant.ty);
                lines.push(declaration(&parse_quote!(#vis const #name: #ty = ..;)));
            }
            _ => {}
        }
    }
    lines
}
