//! The boxed calling convention of torch's dispatcher: stacks of `c10::IValue`, and the tensors on them.
//!
//! None of this is an interface, so nothing is assumed: Python finds the tags and offsets on probes of known content
//! when native dispatch is first asked for, and refuses it if anything differs (`probe_boxed` of torch internals).
//!
//! # Which values are alive
//! The dispatcher owns the stack that it passes to a kernel. Until the kernel returns or changes the stack, every value
//! on it is alive, and so are the tensors, lists and storages that these values own.

use pyo3::prelude::*;

/// Tags and offsets, in bytes, of this build of torch.
#[derive(Clone, Copy, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Boxed {
    /// Tag of `None`.
    pub(super) none: u32,
    /// Tag of a tensor.
    pub(super) tensor: u32,
    /// Tag of a `double`.
    float: u32,
    /// Tag of an `int64_t`.
    pub(super) int: u32,
    /// Tag of a `bool`.
    boolean: u32,
    /// Tag of a string.
    pub(super) string: u32,
    /// Tag of a list.
    pub(super) list: u32,
    /// Tag of a device.
    device: u32,
    /// In a list, of the vector of its items; in a string, of its text.
    pub(super) header: usize,
    /// In `TensorImpl`, of the pointer to its storage.
    pub(super) storage: usize,
    /// In `TensorImpl`, of the number of dimensions, which sizes and strides follow.
    sizes: usize,
    /// In `TensorImpl`, of the offset in elements.
    pub(super) offset: usize,
    /// In `TensorImpl`, of the word with the dtype, the device and properties of the layout.
    pub(super) dtype: usize,
    /// In `TensorImpl`, of the set of dispatch keys.
    keys: usize,
    /// In `TensorImpl`, of the pointer to its Python object.
    object: usize,
    /// In the word with the dtype, the bit of numbers that torch wrapped in a tensor.
    pub(super) wrapped: u64,
    /// Address of the tensor without a value.
    undefined: usize,
    /// In `StorageImpl`, of the size in bytes.
    nbytes: usize,
    /// In `StorageImpl`, of the pointer to the data.
    pub(super) data: usize,
}

/// `c10::IValue`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Value {
    pub(super) payload: u64,
    pub(super) tag: u32,
    pub(super) _unused: u32,
}

/// `std::vector<c10::IValue>`.
#[repr(C)]
pub struct Stack {
    pub(super) begin: *mut Value,
    pub(super) end: *mut Value,
    pub(super) capacity: *mut Value,
}

/// Address of a `c10::TensorImpl` that has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor(pub(super) usize);

/// A number that torch wrapped in a tensor: `x * 2` comes to the dispatcher as the product of two tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrapped {
    /// A Python `float`.
    Float(f64),
    /// A Python `int`.
    Int(i64),
    /// A Python `bool`.
    Bool(bool),
    /// A number of another type.
    Other,
}

/// A value on the stack.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Nothing, or a tensor without a value.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A `double`.
    Float(f64),
    /// An `int64_t`.
    Int(i64),
    /// A `bool`.
    Bool(bool),
    /// A text.
    Text(&'a [u8]),
    /// The items of a list.
    List(&'a [Value]),
    /// A device.
    Device(u64),
    /// Anything else.
    Other,
}

impl Stack {
    /// An empty stack.
    pub fn empty() -> Stack {
        let null = std::ptr::null_mut();
        Stack {
            begin: null,
            end: null,
            capacity: null,
        }
    }

    /// All values.
    ///
    /// # Safety
    /// As for [`last`](Self::last).
    pub unsafe fn all(&self) -> &[Value] {
        let length = (self.end as usize).wrapping_sub(self.begin as usize) / size_of::<Value>();
        // SAFETY: as the caller promises.
        unsafe { self.last(length) }.unwrap_or(&[])
    }

    /// The last `count` values.
    ///
    /// # Safety
    /// The dispatcher passed the stack to a kernel that has not returned, and nobody changes it as long as the slice is
    /// used.
    pub unsafe fn last(&self, count: usize) -> Option<&[Value]> {
        let length = (self.end as usize).wrapping_sub(self.begin as usize) / size_of::<Value>();
        if self.begin.is_null() || length < count {
            return (count == 0).then_some(&[]);
        }
        // SAFETY: the caller promises a vector in use, whose values lie between `begin` and `end`, `length` of them.
        Some(unsafe { std::slice::from_raw_parts(self.end.sub(count), count) })
    }
}

impl Value {
    /// The tag and the payload, for the probe.
    pub fn raw(&self) -> (u32, u64) {
        (self.tag, self.payload)
    }

    /// The address of the value's `at::Tensor`, if it is a tensor: torch wraps it for Python.
    pub fn as_tensor_base(&self) -> *const Value {
        self
    }
}

impl Boxed {
    /// Reads a value.
    ///
    /// # Safety
    /// The value is alive (see the module's documentation), and this is the description of this build of torch.
    pub unsafe fn read<'a>(&self, value: &'a Value) -> Item<'a> {
        let payload = value.payload;
        match value.tag {
            tag if tag == self.none => Item::None,
            tag if tag == self.tensor && payload as usize == self.undefined => Item::None,
            tag if tag == self.tensor => Item::Tensor(Tensor(payload as usize)),
            tag if tag == self.float => Item::Float(f64::from_bits(payload)),
            tag if tag == self.int => Item::Int(payload as i64),
            tag if tag == self.boolean => Item::Bool(payload & 0xff != 0),
            tag if tag == self.device => Item::Device(payload & 0xffff),
            tag if tag == self.list => {
                // SAFETY: the caller promises that the list is alive; the probe found the vector at this offset.
                let items = unsafe { &*((payload as usize + self.header) as *const Stack) };
                let length =
                    (items.end as usize).wrapping_sub(items.begin as usize) / size_of::<Value>();
                // SAFETY: as above; the list's owner, a value on the stack, keeps the items for as long.
                unsafe { items.last(length) }.map_or(Item::Other, Item::List)
            }
            tag if tag == self.string => {
                // SAFETY: the caller promises that the string is alive; the probe found its text at this offset: a
                // pointer and a length.
                let [data, length] =
                    unsafe { *((payload as usize + self.header) as *const [usize; 2]) };
                // SAFETY: as above.
                Item::Text(unsafe { std::slice::from_raw_parts(data as *const u8, length) })
            }
            _ => Item::Other,
        }
    }
}

impl Boxed {
    /// The tensor at this address as a value, which owns no reference.
    pub fn tensor_at(&self, address: usize) -> Value {
        Tensor(address).as_value(self)
    }

    /// A value as text, for the probe to compare.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    pub unsafe fn show(&self, value: &Value) -> String {
        // SAFETY: as the caller promises; lists keep their items alive.
        unsafe {
            match self.read(value) {
                Item::None => "none".into(),
                Item::Float(value) => format!("float {value}"),
                Item::Int(value) => format!("int {value}"),
                Item::Bool(value) => format!("bool {value}"),
                Item::Text(text) => format!("text {}", String::from_utf8_lossy(text)),
                Item::Device(device) => format!("device {device}"),
                Item::Other => "other".into(),
                Item::List(items) => {
                    let items = items.iter().map(|item| self.show(item));
                    format!("list [{}]", items.collect::<Vec<_>>().join(", "))
                }
                Item::Tensor(tensor) if tensor.wraps(self) => {
                    format!("wrapped {:?}", tensor.number(self))
                }
                Item::Tensor(tensor) => {
                    let ([sizes, strides], storage) = (tensor.geometry(self), tensor.storage(self));
                    let bytes = if storage == 0 {
                        0
                    } else {
                        storage_bytes(self, storage)
                    };
                    format!(
                        "tensor {sizes:?} {strides:?} offset {} keys {} dtype {} storage {storage} of {bytes}",
                        tensor.offset(self),
                        tensor.keys(self),
                        tensor.dtype(self) & 0xffff,
                    )
                }
            }
        }
    }
}

impl Tensor {
    /// The address of the `c10::TensorImpl`.
    pub fn address(self) -> usize {
        self.0
    }

    /// # Safety
    /// The tensor is alive, and the word at the offset belongs to it.
    unsafe fn word(self, offset: usize) -> u64 {
        // SAFETY: the caller promises it.
        unsafe { ((self.0 + offset) as *const u64).read() }
    }

    /// The set of dispatch keys.
    ///
    /// # Safety
    /// The tensor is alive (see the module's documentation), and `boxed` describes this build of torch.
    pub unsafe fn keys(self, boxed: &Boxed) -> u64 {
        // SAFETY: as the caller promises; the probe found the offset.
        unsafe { self.word(boxed.keys) }
    }

    /// The dtype and the device.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn kind(self, boxed: &Boxed) -> u32 {
        // SAFETY: as the caller promises. Behind both lie flags that strides tell too, and bits that nobody sets.
        unsafe { self.dtype(boxed) as u32 }
    }

    /// The word with the dtype, the device and properties of the layout.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn dtype(self, boxed: &Boxed) -> u64 {
        // SAFETY: as the caller promises; the probe found the offset.
        unsafe { self.word(boxed.dtype) }
    }

    /// The tensor as a value, which owns no reference.
    pub(super) fn as_value(self, boxed: &Boxed) -> Value {
        Value {
            payload: self.0 as u64,
            tag: boxed.tensor,
            _unused: 0,
        }
    }

    /// Whether the tensor is a number that torch wrapped.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn wraps(self, boxed: &Boxed) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.dtype(boxed) & boxed.wrapped != 0 }
    }

    /// The number that torch wrapped.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys), and the tensor [wraps](Self::wraps) a number.
    pub unsafe fn number(self, boxed: &Boxed) -> Wrapped {
        /// Torch's numbers of the types.
        const INT: u64 = 4;
        const FLOAT: u64 = 7;
        const BOOL: u64 = 11;
        // SAFETY: as the caller promises. Torch wraps a number in a tensor of one element, at the beginning of a
        // storage in main memory. The probe compared numbers of each type.
        unsafe {
            let dtype = self.dtype(boxed) & 0xffff;
            let data = *((self.storage(boxed) + boxed.data) as *const *const u8);
            match dtype {
                FLOAT => Wrapped::Float(data.cast::<f64>().read()),
                INT => Wrapped::Int(data.cast::<i64>().read()),
                BOOL => Wrapped::Bool(data.read() != 0),
                _ => Wrapped::Other,
            }
        }
    }

    /// The offset in elements.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn offset(self, boxed: &Boxed) -> i64 {
        // SAFETY: as the caller promises; the probe found the offset.
        unsafe { self.word(boxed.offset) as i64 }
    }

    /// Whether the tensor has a Python object. What has none is of no class of the program's.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn has_object(self, boxed: &Boxed) -> bool {
        /// Up to torch 2.9 set while the tensor owns its object.
        const OWNS: u64 = 1;
        // SAFETY: as the caller promises; the probe found the offset.
        unsafe { self.word(boxed.object) & !OWNS != 0 }
    }

    /// Address of the `StorageImpl`; 0 for tensors without one.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn storage(self, boxed: &Boxed) -> usize {
        // SAFETY: as the caller promises; the probe found the offset.
        unsafe { self.word(boxed.storage) as usize }
    }

    /// Sizes and strides.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    pub unsafe fn geometry<'a>(self, boxed: &Boxed) -> [&'a [i64]; 2] {
        /// As many dimensions lie within the tensor itself.
        const INLINE: usize = 5;
        // SAFETY: as the caller promises; the probe found the offset, on tensors of few and of many dimensions.
        unsafe {
            let dimensions = self.word(boxed.sizes) as usize;
            let inline = (self.0 + boxed.sizes + 8) as *const i64;
            let (sizes, strides) = if dimensions <= INLINE {
                (inline, inline.add(INLINE))
            } else {
                let outside = *(inline as *const *const i64);
                (outside, outside.add(dimensions))
            };
            [
                std::slice::from_raw_parts(sizes, dimensions),
                std::slice::from_raw_parts(strides, dimensions),
            ]
        }
    }
}

/// Words of a `TensorImpl` that the probe looks at; every build since 2.6 has more.
pub const PROBED_WORDS: usize = 23;

/// The first words of a value's tensor, for the probe.
///
/// # Safety
/// The value is a tensor and alive.
pub unsafe fn words(value: &Value) -> [u64; PROBED_WORDS] {
    // SAFETY: the caller promises a tensor, which has at least as many words.
    unsafe { (value.payload as *const [u64; PROBED_WORDS]).read() }
}

impl Boxed {
    /// The address of a storage's bytes.
    ///
    /// # Safety
    /// As for [`deleter`](Self::deleter).
    pub unsafe fn data(&self, storage: usize) -> usize {
        // SAFETY: the probe found the offset.
        unsafe { ((storage + self.data) as *const usize).read() }
    }

    /// The function that frees a storage's bytes, as a number.
    ///
    /// # Safety
    /// The storage is alive, and `self` describes this build of torch.
    #[inline]
    pub unsafe fn deleter(&self, storage: usize) -> usize {
        // SAFETY: the probe found the offset of the three words that a `DataPtr` begins with, and this is the second.
        unsafe { ((storage + self.data + 8) as *const usize).read() }
    }
}

/// The offset, in a list at this address, of the vector of its items, which are the integers expected.
///
/// # Safety
/// A `c10::List` with as many items lies at the address.
pub unsafe fn find_items(list: u64, expected: &[i64]) -> Option<usize> {
    // Behind the vtable and one or two counts.
    [16, 24].into_iter().find(|header| {
        // SAFETY: the caller promises a list, which is larger than what is read. A vector is followed only if its
        // length is the one expected.
        unsafe {
            let items = &*((list as usize + header) as *const Stack);
            let bytes = (items.end as usize).wrapping_sub(items.begin as usize);
            let plausible = !items.begin.is_null()
                && items.begin as usize % 8 == 0
                && bytes == size_of_val(expected) * 2
                && items.capacity >= items.end;
            plausible
                && items.last(expected.len()).is_some_and(|items| {
                    let found = items.iter().map(|item| item.payload as i64);
                    found.eq(expected.iter().copied())
                })
        }
    })
}

/// The bytes that a storage says it has.
///
/// # Safety
/// The storage at this address is alive, and `boxed` describes this build of torch.
pub unsafe fn storage_bytes(boxed: &Boxed, storage: usize) -> u64 {
    // SAFETY: as the caller promises; the probe found the offset.
    unsafe { ((storage + boxed.nbytes) as *const u64).read() }
}
