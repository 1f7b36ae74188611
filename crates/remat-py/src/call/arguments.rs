//! One pass over an op's arguments finds the storages that it reads and writes, its signature, and the description of
//! its arguments for a replay.

use std::hash::Hasher;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use remat_core::TensorId;
use rustc_hash::{FxHashMap, FxHasher};

use super::func::Func;
use super::invocation::Invocation;
use super::knowledge::StatsUse;
use super::view::{Arg, Geometry, View};
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Object;
use crate::tracking::live::LiveId;

/// The class of a Python type, as far as arguments are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A tensor of torch's own class or a subclass that does not intercept ops.
    Tensor,
    /// A parameter of a module: the optimizer will write it, and every step reads it.
    Parameter,
    /// A tensor subclass that intercepts ops itself.
    Wrapper,
    /// A random generator.
    Generator,
    /// Anything else.
    Other,
}

/// The kind of a dtype, as far as arguments are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Complex numbers: a tensor of them may be conjugated lazily.
    Complex,
    /// A tensor of it carries a quantizer.
    Quantized,
    /// All others.
    Plain,
}

/// C methods of torch and tables about types, looked up once.
pub struct Torch {
    /// `TensorBase.untyped_storage`.
    pub untyped_storage: Py<PyAny>,
    /// `part_storages(tensor) -> list`: the storages of a sparse tensor's parts.
    pub part_storages: Py<PyAny>,
    /// `TensorBase.stride`.
    pub stride: Py<PyAny>,
    /// `TensorBase.storage_offset`.
    pub storage_offset: Py<PyAny>,
    /// `TensorBase.is_conj`.
    pub is_conj: Py<PyAny>,
    /// `TensorBase.is_neg`.
    pub is_neg: Py<PyAny>,
    /// `form(tensor) -> (form, hash, list)`: all but the bytes of a tensor that shape, strides and dtype do not tell, a
    /// hash of its sizes, and storages that kernels read beside its own.
    pub form: Py<PyAny>,
    /// Dtypes of tensors that carry a quantizer.
    pub quantized: Py<PyAny>,
    /// `classify(type) -> int`: 0 tensor, 1 wrapper, 2 other, 3 parameter, 4 generator.
    pub classify: Py<PyAny>,
    /// Types seen so far, by address. The entry keeps the type alive.
    pub classes: FxHashMap<usize, (Class, Py<PyAny>)>,
    /// Kinds of dtypes, by address.
    pub dtypes: FxHashMap<usize, Dtype>,
    /// Whether any complex tensor was seen. Only then can a tensor carry a lazy negation.
    pub any_complex: bool,
    /// Whether an op had a complex tensor among its arguments.
    pub complex_seen: bool,
}

impl Torch {
    /// Looks the methods up in the Python module `torch_internals`.
    ///
    /// # Errors
    /// `AttributeError` for a method that is not there.
    pub fn of(module: &Bound<'_, PyAny>) -> PyResult<Torch> {
        let base = module.getattr("TensorBase")?;
        let method = |name: &str| -> PyResult<Py<PyAny>> { Ok(base.getattr(name)?.unbind()) };
        Ok(Torch {
            untyped_storage: method("untyped_storage")?,
            part_storages: module.getattr("part_storages")?.unbind(),
            stride: method("stride")?,
            storage_offset: method("storage_offset")?,
            is_conj: method("is_conj")?,
            is_neg: method("is_neg")?,
            form: module.getattr("form")?.unbind(),
            quantized: module.getattr("QUANTIZED")?.unbind(),
            classify: module.getattr("classify")?.unbind(),
            classes: FxHashMap::default(),
            dtypes: FxHashMap::default(),
            any_complex: true,
            complex_seen: false,
        })
    }

    /// The class of a value.
    #[inline]
    pub fn class_of(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Class> {
        let ty = value.get_type();
        if let Some((class, _)) = self.classes.get(&(ty.as_ptr() as usize)) {
            return Ok(*class);
        }
        let class = match self
            .classify
            .bind(value.py())
            .call1((&ty,))?
            .extract::<u8>()?
        {
            0 => Class::Tensor,
            1 => Class::Wrapper,
            3 => Class::Parameter,
            4 => Class::Generator,
            _ => Class::Other,
        };
        self.classes
            .insert(ty.as_ptr() as usize, (class, ty.into_any().unbind()));
        Ok(class)
    }

    /// The storages that a tensor without one of its own is made of.
    pub fn parts<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.part_storages
            .bind(tensor.py())
            .call1((tensor,))?
            .extract()
    }

    fn kind_of(&mut self, dtype: &Bound<'_, PyAny>) -> PyResult<Dtype> {
        let key = dtype.as_ptr() as usize;
        if let Some(known) = self.dtypes.get(&key) {
            return Ok(*known);
        }
        let kind = if dtype.getattr("is_complex")?.extract()? {
            Dtype::Complex
        } else if self.quantized.bind(dtype.py()).contains(dtype)? {
            Dtype::Quantized
        } else {
            Dtype::Plain
        };
        self.dtypes.insert(key, kind);
        self.any_complex |= kind == Dtype::Complex;
        self.complex_seen |= kind == Dtype::Complex;
        Ok(kind)
    }
}

/// The findings of one pass over the arguments.
#[derive(Default)]
pub struct Walk {
    /// Distinct storages read, in order of appearance.
    pub inputs: Vec<TensorId>,
    /// Their live ids.
    pub lives: Vec<LiveId>,
    /// Inputs that are written, as indices into `inputs`.
    pub written: Vec<u32>,
    /// Storages of running statistics that the op updates on the side.
    pub stats: Vec<LiveId>,
    /// Views of the inputs.
    pub views: Vec<View>,
    /// Their offsets, in elements.
    pub offsets: Vec<i64>,
    /// Positional arguments.
    pub args: Vec<Arg>,
    /// Keyword arguments.
    pub kwargs: Vec<(Object, Arg)>,
    /// Names of the keyword arguments.
    pub names: Vec<String>,
    /// Whether a tensor is among the arguments whose parts Remat cannot tell, or whose parts the op may exchange.
    pub opaque: bool,
    /// Whether a parameter of a module is among the arguments.
    pub parameters: bool,
    /// Storages of the parts of sparse arguments.
    pub parts: Vec<LiveId>,
    /// Whether a tensor subclass that intercepts ops is among the arguments.
    pub wrapper: bool,
    /// Signature of the call.
    pub signature: u64,
}

/// A storage that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Its live id and tensor.
    Live(LiveId, TensorId),
    /// It promises bytes that it does not have. Torch makes tensors of zeros so that it need not allocate.
    Hollow,
    /// It is not on a device with memory of its own (meta).
    Elsewhere,
}

/// The table in which a walk finds the live storage of a tensor.
pub trait Registry {
    /// Looks a storage up, and registers it if it is new.
    fn resolve(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<Resolved>;
}

struct Walker<'a, R: Registry> {
    torch: &'a mut Torch,
    registry: &'a mut R,
    hash: FxHasher,
    out: Walk,
    tensors: usize,
    /// Scalars among the arguments, which are part of the signature only if no argument is a tensor.
    scalars: Vec<u64>,
}

/// The meaning of an integer argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// It may change the size of a result.
    Sizes,
    /// It is a value to compute with.
    Scalars,
}

/// An op's use of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// Statistics that the op updates on the side, without reading them.
    Side,
    /// Statistics that the op neither reads nor updates.
    Skip,
}

/// An argument whose storage was found.
struct Stored<'py> {
    live: LiveId,
    id: TensorId,
    access: Access,
    dtype: Bound<'py, PyAny>,
}

/// Walks the arguments of a call, which makes some use of running statistics.
///
/// # Errors
/// An error of Python's, or of the registry.
pub fn walk<R: Registry>(
    torch: &mut Torch,
    registry: &mut R,
    call: &Invocation<'_, '_>,
    stats: StatsUse,
) -> PyResult<Walk> {
    let mut walker = Walker {
        torch,
        registry,
        hash: FxHasher::default(),
        out: Walk::default(),
        tensors: 0,
        scalars: Vec::new(),
    };
    walker
        .hash
        .write_usize(call.func.overload.as_ptr() as usize);
    walker.positional(call, stats)?;
    if let Some(kwargs) = call.kwargs {
        walker.keywords(call.func, kwargs)?;
    }
    if walker.tensors == 0 {
        // A factory: its numbers are its sizes (`arange(0, 1, 0.1)`).
        for n in std::mem::take(&mut walker.scalars) {
            walker.hash.write_u64(n);
        }
    }
    walker.out.signature = walker.hash.finish();
    Ok(walker.out)
}

impl<R: Registry> Walker<'_, R> {
    fn positional(&mut self, call: &Invocation<'_, '_>, stats: StatsUse) -> PyResult<()> {
        let Invocation { func, args, .. } = *call;
        let places = func.stats.as_ref().map_or(&[][..], |stats| &stats.args);
        self.out.args.reserve(args.len());
        for (i, value) in args.iter().enumerate() {
            let access = match stats {
                StatsUse::Updated if places.contains(&i) => Access::Side,
                StatsUse::Ignored if places.contains(&i) => Access::Skip,
                _ if func.writes.contains(&i) => Access::Write,
                _ => Access::Read,
            };
            let numbers = if i < 64 && func.scalars >> i & 1 == 1 {
                Numbers::Scalars
            } else {
                Numbers::Sizes
            };
            let arg = self.value(&value, access, numbers)?;
            self.out.args.push(arg);
        }
        Ok(())
    }

    fn keywords(&mut self, func: &Func, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        for (name, value) in kwargs.iter() {
            self.hash.write_isize(name.hash()?);
            let mut access = Access::Read;
            for written in &func.writes_by_name {
                if written.bind(kwargs.py()).as_any().eq(&name)? {
                    access = Access::Write;
                }
            }
            let arg = self.value(&value, access, Numbers::Sizes)?;
            self.out.names.push(name.extract()?);
            self.out.kwargs.push((name.unbind().into(), arg));
        }
        Ok(())
    }

    fn value(
        &mut self,
        value: &Bound<'_, PyAny>,
        access: Access,
        numbers: Numbers,
    ) -> PyResult<Arg> {
        if value.is_none() {
            self.hash.write_u8(1);
        } else if value.is_exact_instance_of::<PyBool>() {
            self.hash.write_u8(if value.is_truthy()? { 2 } else { 3 });
        } else if value.is_exact_instance_of::<PyInt>() {
            // Not Python's hash: -1 and -2 share one, and both are dimensions.
            let n = value
                .extract::<i64>()
                .map_or_else(|_| value.hash().map(|h| h as u64), |n| Ok(n as u64))?;
            self.number(n, numbers, 4);
        } else if value.is_exact_instance_of::<PyFloat>() {
            self.number(value.hash()? as u64, Numbers::Scalars, 5);
        } else if value.is_exact_instance_of::<PyList>() || value.is_exact_instance_of::<PyTuple>()
        {
            return self.list(value, access, numbers);
        } else if value.is_exact_instance_of::<PyString>() {
            self.hash.write_isize(value.hash()?);
        } else {
            match self.torch.class_of(value)? {
                Class::Tensor => return self.tensor(value, access),
                Class::Parameter => {
                    self.out.parameters = true;
                    return self.tensor(value, access);
                }
                Class::Wrapper => self.out.wrapper = true,
                // Programs make one for each batch, and what calls make of any takes the same bytes and time.
                Class::Generator => self.hash.write_u8(6),
                Class::Other => match value.hash() {
                    Ok(h) => self.hash.write_isize(h),
                    Err(_) => self.hash.write_usize(value.get_type().as_ptr() as usize),
                },
            }
        }
        Ok(Arg::Object(value.clone().unbind().into()))
    }

    fn number(&mut self, n: u64, numbers: Numbers, tag: u8) {
        self.hash.write_u8(tag);
        match numbers {
            Numbers::Scalars => self.scalars.push(n),
            Numbers::Sizes => self.hash.write_u64(n),
        }
    }

    fn list(
        &mut self,
        value: &Bound<'_, PyAny>,
        access: Access,
        numbers: Numbers,
    ) -> PyResult<Arg> {
        let length = value.len()?;
        self.hash.write_usize(length ^ 0x5bd1_e995);
        let before = self.tensors;
        let mut items = Vec::with_capacity(length);
        for item in value.try_iter()? {
            items.push(self.value(&item?, access, numbers)?);
        }
        if self.tensors == before {
            return Ok(Arg::Object(value.clone().unbind().into()));
        }
        Ok(Arg::List(items))
    }

    /// Sparse and other layouts have no storage of their own. They are passed as they are, and their parts stay in
    /// memory.
    fn sparse(&mut self, tensor: &Bound<'_, PyAny>, access: Access) -> PyResult<Arg> {
        let py = tensor.py();
        let parts = self.torch.parts(tensor)?;
        // A write may give it other parts.
        self.out.opaque |= parts.is_empty() || access == Access::Write;
        self.hash.write_u8(8);
        self.hash
            .write_isize(tensor.getattr(intern!(py, "shape"))?.hash()?);
        self.hash
            .write_usize(tensor.getattr(intern!(py, "dtype"))?.as_ptr() as usize);
        for storage in parts {
            let bytes: u64 = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
            self.hash.write_u64(bytes);
            if let Resolved::Live(live, id) = self.registry.resolve(&storage)? {
                self.input(live, id, access);
                self.out.parts.push(live);
            }
        }
        Ok(Arg::Object(tensor.clone().unbind().into()))
    }

    /// A tensor of zeros without bytes. It is passed as it is: there is nothing to evict.
    fn hollow(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Arg> {
        let py = tensor.py();
        self.hash.write_u8(9);
        let shape = tensor.getattr(intern!(py, "shape"))?;
        self.hash.write_isize(shape.hash()?);
        let stride = call_one(&self.torch.stride, tensor)?;
        self.hash.write_isize(stride.hash()?);
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        self.hash.write_usize(dtype.as_ptr() as usize);
        // Not the program's own tensor, whose graph a record must not keep.
        let detached = tensor.call_method0(intern!(py, "detach"))?;
        Ok(Arg::Object(detached.unbind().into()))
    }

    /// A tensor that shape, strides and dtype do not describe.
    fn formed(&mut self, tensor: &Bound<'_, PyAny>, stored: Stored<'_>) -> PyResult<Arg> {
        let form = call_one(&self.torch.form, tensor)?;
        let (form, sizes, read): (Bound<'_, PyAny>, isize, Vec<Bound<'_, PyAny>>) =
            form.extract()?;
        self.hash.write_u8(10);
        self.hash.write_isize(sizes);
        self.hash.write_usize(stored.dtype.as_ptr() as usize);
        let input = self.input(stored.live, stored.id, stored.access);
        self.hash.write_u32(input);
        for storage in read {
            if let Resolved::Live(live, id) = self.registry.resolve(&storage)? {
                self.input(live, id, Access::Read);
                self.out.parts.push(live);
            }
        }
        self.out.offsets.push(0);
        self.out.views.push(View {
            input,
            geometry: Geometry::default(),
            dtype: stored.dtype.unbind().into(),
            conj: false,
            neg: false,
            form: Some(form.unbind().into()),
        });
        Ok(Arg::Tensor((self.out.views.len() - 1) as u32))
    }

    /// The index of an input, which is added when it is new.
    fn input(&mut self, live: LiveId, id: TensorId, access: Access) -> u32 {
        let input = match self.out.inputs.iter().position(|&t| t == id) {
            Some(i) => i,
            None => {
                self.out.inputs.push(id);
                self.out.lives.push(live);
                self.out.inputs.len() - 1
            }
        } as u32;
        if access == Access::Write && !self.out.written.contains(&input) {
            self.out.written.push(input);
        }
        input
    }

    fn tensor(&mut self, tensor: &Bound<'_, PyAny>, access: Access) -> PyResult<Arg> {
        let py = tensor.py();
        self.tensors += 1;
        let Ok(storage) = call_one(&self.torch.untyped_storage, tensor) else {
            return self.sparse(tensor, access);
        };
        let (live, id) = match self.registry.resolve(&storage)? {
            Resolved::Live(live, id) => (live, id),
            Resolved::Hollow => return self.hollow(tensor),
            Resolved::Elsewhere => {
                self.out.opaque = true;
                return Ok(Arg::Object(tensor.clone().unbind().into()));
            }
        };
        let stored = Stored {
            live,
            id,
            access,
            dtype: tensor.getattr(intern!(py, "dtype"))?,
        };
        let kind = self.torch.kind_of(&stored.dtype)?;
        match tensor.getattr(intern!(py, "shape")) {
            Ok(shape) if kind != Dtype::Quantized => self.strided(tensor, stored, kind, shape),
            _ => self.formed(tensor, stored),
        }
    }

    /// A tensor that its shape, strides and dtype describe.
    fn strided<'py>(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        stored: Stored<'py>,
        kind: Dtype,
        shape: Bound<'py, PyAny>,
    ) -> PyResult<Arg> {
        let Stored {
            live,
            id,
            access,
            dtype,
        } = stored;
        let stride = call_one(&self.torch.stride, tensor)?;
        self.hash.write_u8(7);
        self.hash.write_isize(shape.hash()?);
        self.hash.write_isize(stride.hash()?);
        self.hash.write_usize(dtype.as_ptr() as usize);
        match access {
            Access::Side => {
                self.out.stats.push(live);
                return Ok(Arg::Absent);
            }
            Access::Skip => return Ok(Arg::Absent),
            Access::Read | Access::Write => {}
        }
        let input = self.input(live, id, access);
        self.hash.write_u32(input);
        let conj = kind == Dtype::Complex && call_one(&self.torch.is_conj, tensor)?.is_truthy()?;
        let neg = self.torch.any_complex && call_one(&self.torch.is_neg, tensor)?.is_truthy()?;
        self.hash.write_u8(u8::from(conj) | u8::from(neg) << 1);
        let geometry = Geometry {
            sizes: shape.extract::<Vec<u64>>()?.into(),
            strides: stride.extract::<Vec<i64>>()?.into(),
        };
        let offset = call_one(&self.torch.storage_offset, tensor)?;
        self.out.offsets.push(offset.extract()?);
        self.out.views.push(View {
            input,
            geometry,
            dtype: dtype.unbind().into(),
            conj,
            neg,
            form: None,
        });
        Ok(Arg::Tensor((self.out.views.len() - 1) as u32))
    }
}
